"""The command line, as a newcomer and as a program meet it."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.formats.graph_file import save_graph
from placelab.verbs import VERBS
from tests.oracle.toys import random_graph
from tests.placers.stand_in import release

ROOT = Path(__file__).resolve().parents[2]
GRAPH = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
RECORD = {
    "problem", "placer", "step_seconds", "fits", "peak_bytes", "simulations", "search_seconds", "lower_bound_seconds",
}  # fmt: skip


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `place` begins with by default."""
    release(monkeypatch, tmp_path_factory.mktemp("package"))


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "placelab", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "NO_COLOR": "1", "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same in this process, where torch is loaded once."""
    from evaluation.commands import command_line

    with pytest.raises(SystemExit) as stop:
        command_line.run(VERBS, "about", arguments)
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert isinstance(stop.value.code, int)
    return stop.value.code, captured.out, captured.err


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_keyword_and_says_what_it_means(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, verb, "--help")
    assert code == 0
    for keyword in inspect.signature(VERBS[verb]).parameters:
        assert f"--{keyword.replace('_', '-')}" in out
        assert f"{keyword}: " in (inspect.getdoc(VERBS[verb]) or ""), f"{keyword} is not explained"
    assert "--json" in out


def test_a_plan_goes_out_and_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, plan = str(tmp_path / "small.graph.json"), str(tmp_path / "small.plan.json")
    assert call(capsys, "capture", GRAPH, "--out", graph)[0] == 0
    code, out, err = call(capsys, "place", graph, "--budget", "20", "--out", plan, "--json")
    placed = json.loads(out)
    assert code == 0
    assert set(placed) > RECORD
    assert err.startswith(f"placelab place {graph} --budget 20 --out {plan} --json --seed 0\n")
    code, out, _ = call(capsys, "simulate", graph, plan, "--json")
    simulated = json.loads(out)
    assert code == 0
    same = ("problem", "placer", "step_seconds", "fits", "peak_bytes", "simulations", "placement")
    assert all(simulated[key] == placed[key] for key in same)
    assert "gpu:0" in call(capsys, "simulate", graph, plan)[1]


def test_compare_gives_a_record_per_placer_and_problem(capsys: pytest.CaptureFixture[str]) -> None:
    clusters = ["--clusters", "p100:devices=2", "--clusters", "cpu_gpu"]
    code, out, _ = call(capsys, "compare", GRAPH, *clusters, "--placers", "heft", "--placers", "random", "--json")
    records = json.loads(out)
    assert code == 0
    assert [(r["problem"].split("@")[1].split(":")[0], r["placer"]) for r in records] == [
        ("p100", "heft"), ("p100", "random"), ("cpu_gpu", "heft"), ("cpu_gpu", "random"),
    ]  # fmt: skip
    assert all(set(record) >= RECORD for record in records)


def test_show_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "show", GRAPH, "--json")
    assert json.loads(out)["ops_by_phase"]["forward"] > 10
    _, out, _ = call(capsys, "list", "families", "--json")
    families = {entry["name"]: entry for entry in json.loads(out) if "package" not in entry}
    assert all(entry["splits"]["train"] and entry["splits"]["test"] for entry in families.values())
    assert set(families) >= {"cifar10", "ptb", "nmt", "nasnet", "xlnet", "layered"}
    named = {configuration for entry in families.values() for configuration in entry["configurations"]}
    assert named >= {
        "rnnlm-2", "rnnlm-4", "rnnlm-8", "gnmt-2", "gnmt-4", "gnmt-8", "transformer-xl-2", "transformer-xl-4",
        "transformer-xl-8", "inception-v3", "amoebanet", "wavenet-2x18", "wavenet-4x36", "bert-large", "vgg-19",
        "resnet-50", "resnet-152", "se-resnext-50", "vit-base", "wresnet-152-10", "rnn-10", "gpt2", "llama-7b",
    }  # fmt: skip
    _, out, _ = call(capsys, "list", "suites", "--json")
    suites = {entry["name"]: len(entry["problems"]) for entry in json.loads(out)}
    assert (suites["gdp12"], suites["placeto"]) == (12, 6)
    assert set(suites) == {"gdp12", "placeto", "heldout", "newfamilies", "clusters", "curves"}
    assert "annealing" in call(capsys, "list")[1]


def test_a_name_is_listed_with_its_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "list", "rnnlm", "--json")
    (found,) = json.loads(out)
    assert found["name"] == "rnnlm"
    assert found["knobs"] == {"layers": "2", "steps": "20", "hidden": "1024", "batch": "64", "vocabulary": "10000"}
    assert "order=gpipe" in call(capsys, "list", "gpipe")[1], "of a placer that has the name of an order of passes, too"
    code, _, said = call(capsys, "list", "rnnml")
    assert code == 2
    assert "unknown kind of thing 'rnnml'; did you mean 'rnnlm'?" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["place", "rnlm"], "unknown model family 'rnlm'; did you mean 'rnnlm'"),
        (["place", "rnnlm:layer=2"], "unknown knob 'layer'; did you mean 'layers'"),
        (["place", "missing.graph.json"], "missing.graph.json"),
        (["place", "missing.py:model"], "missing.py"),
        (["place", GRAPH, "--cluster", "p101"], "unknown cluster 'p101'; did you mean 'p100'"),
        (["place", GRAPH, "--cluster", "missing.cluster.toml"], "missing.cluster.toml"),
        (["place", GRAPH, "--cluster", "p101x4"], "unknown cluster 'p101x4'; did you mean 'p100'"),
        (["place", GRAPH, "--placer", "annealing:policy=nowhere"], "unknown placer 'nowhere'"),
        (["place", GRAPH, "--placer", "heft+finetuned"], "'heft' cannot be fine-tuned"),
        (["place", GRAPH, "--placer", "mettis"], "unknown placer 'mettis'; did you mean 'metis'"),
        (
            ["place", GRAPH, "--optimizer", "adamw"],
            "unknown optimizer 'adamw'; did you mean 'adam'? there are: sgd, momentum, adam",
        ),
        (["place", GRAPH, "--host", "fast"], "host 'fast': expected eager, megatron, compiled, replayed, graphs, none"),
        (["fits", GRAPH, "--reserve", "much"], "reserve 'much': expected cuda, none to reserve nothing, bytes such as"),
        (["place", GRAPH, "--groups", "0"], "--groups is 0; expected at least 1, or `none`"),
        (["place", GRAPH, "--budget", "-1"], "--budget is -1; expected a whole number >= 0"),
        (["place", GRAPH, "--out", "nowhere/a.plan.json"], "nowhere"),
        (["simulate", GRAPH, "missing.plan.json"], "missing.plan.json"),
        (
            ["place", GRAPH, "--placer", "heft", "--micro-batches", "4"],
            "heft: plans no micro-batches; leave out",
        ),
        (["compare", GRAPH, "--placers", "heft,metis", "--micro-batches", "4"], "heft, metis: plans no micro-batches;"),
        (["place", GRAPH, "--micro-batches", "0"], "--micro-batches is 0; expected a whole number >= 1"),
        (["train", "gpd"], "unknown recipe 'gpd'; did you mean 'gdp'"),
        (["evaluate", "nowhere"], "nowhere holds no policy"),
        (["evaluate", "--suite", "heldou"], "unknown suite 'heldou'; did you mean 'heldout'"),
        (["evaluate", "--placers", "mettis"], "unknown placer 'mettis'; did you mean 'metis'"),
        (["report", "nowhere"], "nowhere"),
        (["finetune", "nowhere", GRAPH], "nowhere"),
        (["plcae"], "did you mean 'place'?"),
        (["place"], "place needs GRAPH, as in: placelab place "),
    ],
)
def test_wrong_input_gets_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert code == 2
    assert not out
    assert sentence in err.splitlines()[-1]
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_plan_for_another_graph_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "a.plan.json")
    call(capsys, "place", GRAPH, "--placer", "heft", "--out", plan)
    code, _, err = call(capsys, "simulate", GRAPH.replace("steps=2", "steps=3"), plan)
    assert code == 2
    assert "is for graph" in err
    assert "steps=3" in err


def test_a_graph_that_fits_nowhere_says_what_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    huge = "transformer:layers=1,width=65536,heads=8,sequence=8,batch=1,vocabulary=16"
    code, out, err = call(capsys, "place", huge, "--budget", "10", "--json")
    assert code == 3
    assert json.loads(out)["fits"] is False
    needed = "needs", "that tensors may take of its", "all devices together hold 26", "largest output"
    for part in ("no plan was found", *needed, "a larger --budget or --optimizer sgd"):
        assert part in err


def test_an_installed_command_line_starts(tmp_path: Path) -> None:
    graph = tmp_path / "small.graph.json"  # placed without torch, which takes longer to import than all else
    save_graph(random_graph(5, seed=1), graph)
    done = run("place", str(graph), "--placer", "heft", "--json")
    assert (done.returncode, json.loads(done.stdout)["placer"]) == (0, "heft"), done.stderr
