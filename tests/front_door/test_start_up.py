"""What a command imports: no more than it needs, for importing is most of the time that a short command takes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.formats.graph_file import save_graph
from tests.oracle.toys import random_graph

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import json, sys, placelab
before, ended = set(), []
for words in json.loads(sys.argv[1]):
    sys.argv = ["placelab", *words]
    try:
        placelab.main()
    except SystemExit as stop:
        ended.append((stop.code, sorted({name.partition(".")[0] for name in sys.modules.keys() - before})))
        before = set(sys.modules)
print(json.dumps(ended), file=sys.stderr)
"""
NUMBERS = {"numpy", "numba", "scipy", "networkx", "gymnasium", "matplotlib", "msgspec"}
NETWORKS = {"torch", "torch_geometric", "safetensors", "sympy", "stable_baselines3"}


def imported(*commands: list[str], code: int = 0) -> dict[str, set[str]]:
    """The packages that each command imports, one after another in one process, each of which ends with the code."""
    command = [sys.executable, "-c", CODE, json.dumps(commands)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ended = json.loads(done.stderr.splitlines()[-1])
    assert [each for each, _ in ended] == [code] * len(commands), done.stderr
    return {" ".join(words): set(packages) for words, (_, packages) in zip(commands, ended, strict=True)}


def importing(packages: set[str], *commands: list[str], code: int = 0) -> dict[str, set[str]]:
    """Those of the commands that import some of the packages, and which."""
    found = {command: modules & packages for command, modules in imported(*commands, code=code).items()}
    return {command: modules for command, modules in found.items() if modules}


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """A graph in a file, as large as needs to be tied into op groups."""
    path = tmp_path / "small.graph.json"
    save_graph(random_graph(100, seed=1), path)
    return str(path)


def test_help_and_lists_need_none_of_the_large_packages() -> None:
    helps: list[list[str]] = [[], ["--help"], ["place", "--help"], ["--version"]]
    lists = ["list"], ["list", "--json"], ["__complete", "place", "rnnlm", "--placer", "m"]
    assert importing(NUMBERS | NETWORKS, *helps, *lists) == {}


def test_nor_does_a_wrong_use() -> None:
    wrong = ["plaec"], ["place", "x", "--budgett", "1"], ["list", "placer"]
    assert importing(NUMBERS | NETWORKS, *wrong, code=2) == {}


def test_a_graph_file_is_shown_placed_simulated_and_compared_on_without_torch(graph: str, tmp_path: Path) -> None:
    plan, journal = str(tmp_path / "a.plan.json"), str(tmp_path / "journal.jsonl")
    commands = (
        ["show", graph],
        ["place", graph, "--placer", "metis", "--budget", "0", "--out", plan],
        ["place", graph, "--placer", "heft", "--robust"],
        ["simulate", graph, plan],
        ["compare", graph, "--placers", "heft,metis", "--journal", journal],
    )
    assert importing(NETWORKS | {"networkx", "matplotlib"}, *commands) == {}


def test_what_does_not_exist_is_refused_without_torch() -> None:
    commands = (
        ["place", "nonsense"],
        ["place", "nowhere.graph.json"],
        ["place", "x.graph.json", "--placer", "nowhere"],
        ["place", "rnnlm", "--cluster", "p1000"],
        ["evaluate", "nowhere"],
        ["finetune", "nowhere", "rnnlm"],
        ["train", "nowhere"],
        ["report", "nowhere"],
        ["run", "nonsense", "x.plan.json"],
        ["run", "rnnlm", "nowhere.plan.json"],
        ["calibrate", "p1000", "--out", "x.cluster.toml"],
    )
    assert importing(NETWORKS, *commands, code=2) == {}


def test_the_released_policy_places_a_graph_file_with_torch_alone(graph: str) -> None:
    [found] = imported(["place", graph, "--plans", "placement", "--budget", "0"]).values()
    assert "torch" in found
    assert not found & (NETWORKS - {"torch", "safetensors"} | {"networkx", "pymetis", "matplotlib"})
