"""What a command imports: no more than it needs, for importing is most of the time that a short command takes."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphs.files.graph_file import save_graph
from tests.oracle.toys import random_graph

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys, placelab
sys.argv = ["placelab", *sys.argv[1:]]
try:
    placelab.main()
except SystemExit as stop:
    print(stop.code, *sys.modules, file=sys.stderr)
"""
NUMBERS = {"numpy", "numba", "scipy", "networkx", "gymnasium", "matplotlib", "msgspec"}
NETWORKS = {"torch", "torch_geometric", "safetensors", "sympy", "stable_baselines3"}


def imported(*arguments: str, code: int = 0) -> set[str]:
    """The packages that a command imports, one that ends with the code."""
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ended, *modules = done.stderr.splitlines()[-1].split()
    assert int(ended) == code, done.stderr
    return {module.partition(".")[0] for module in modules}


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """A graph in a file, as large as needs to be tied into op groups."""
    path = tmp_path / "small.graph.json"
    save_graph(random_graph(100, seed=1), path)
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--help"], ["place", "--help"], ["--version"], ["list"], ["list", "--json"],
        ["__complete", "place", "rnnlm", "--placer", "m"],
    ],
)  # fmt: skip
def test_help_and_lists_need_none_of_the_large_packages(arguments: list[str]) -> None:
    assert not imported(*arguments) & (NUMBERS | NETWORKS)


@pytest.mark.parametrize("arguments", [["plaec"], ["place", "x", "--budgett", "1"], ["list", "placer"]])
def test_nor_does_a_wrong_use(arguments: list[str]) -> None:
    assert not imported(*arguments, code=2) & (NUMBERS | NETWORKS)


def test_a_graph_file_is_shown_placed_simulated_and_compared_on_without_torch(graph: str, tmp_path: Path) -> None:
    plan, journal = str(tmp_path / "a.plan.json"), str(tmp_path / "journal.jsonl")
    unneeded = NETWORKS | {"networkx", "matplotlib"}
    assert not imported("show", graph) & unneeded
    assert not imported("place", graph, "--placer", "metis", "--budget", "0", "--out", plan) & unneeded
    assert not imported("place", graph, "--placer", "heft", "--robust") & unneeded
    assert not imported("simulate", graph, plan) & unneeded
    assert not imported("compare", graph, "--placers", "heft,metis", "--journal", journal) & unneeded


@pytest.mark.parametrize(
    "arguments",
    [
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
    ],
)
def test_what_does_not_exist_is_refused_without_torch(arguments: list[str]) -> None:
    assert not imported(*arguments, code=2) & NETWORKS


def test_the_released_policy_places_a_graph_file_with_torch_alone(graph: str) -> None:
    found = imported("place", graph, "--budget", "0")
    assert "torch" in found
    assert not found & (NETWORKS - {"torch", "safetensors"} | {"networkx", "pymetis", "matplotlib"})
