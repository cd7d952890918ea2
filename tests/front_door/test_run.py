"""`placelab run`: a plan trains in processes, equals the unplaced model, and is shown next to its simulation."""

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from torch import nn

import envs.running.launched_workers  # noqa: F401 - its class derives from Workers, which a fixture replaces
import placelab
from envs.files.trace import GROUPS
from envs.running.processes import Workers
from envs.running.reference import Difference
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.measuring.measured_folder import PLAN, RESULT
from graphs.foundation.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
MODEL = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(8, 16)
        self.norm, self.head = nn.BatchNorm1d(16), nn.Linear(16, 4)
    def forward(self, x, y):
        return F.cross_entropy(self.head(self.norm(self.left(x) + self.right(x).tanh())), y)

def model():
    return Net(), (torch.zeros(16, 8), torch.arange(16) % 4)

def data():
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        yield torch.randn(16, 8, generator=random), torch.randint(4, (16,), generator=random)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in a file, and a plan for it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "net.py").write_text(MODEL)
    placelab.place(f"{folder}/net.py:model", cluster="p100x2", placer="round_robin", out=folder / "model.plan.json")
    return folder


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Two processes, which start once."""
    with Workers(("cpu", "cpu")) as workers:
        yield workers


@pytest.fixture
def started_once(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is done by those."""
    monkeypatch.setattr("envs.running.processes.Workers", lambda devices: nullcontext(workers))


@pytest.fixture
def given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model, for commands that run in its folder."""
    monkeypatch.chdir(folder)
    return "net.py:model"


@pytest.mark.usefixtures("started_once")
def test_a_plan_is_run_checked_shown_and_kept(given: str) -> None:
    run = placelab.run(
        given, "model.plan.json", cluster="p100x2", steps=4, data="net.py:data", seed=3, out="kept",
        chart="both.svg", trace="both.json",
    )  # fmt: skip
    found, predicted = run.to_json(), placelab.simulate(given, "model.plan.json", cluster="p100x2", runtime="run")
    assert found["predicted_seconds"] == predicted.timeline.step_seconds
    assert found["equal"] is True
    assert {what: each["relative"] < 1e-4 for what, each in found["differences"].items()} == dict.fromkeys(
        ("loss", "gradients", "weights", "buffers"), True
    )
    assert len(found["losses"]) == len(found["step_seconds"]) == 4
    assert found["shortest_seconds"] <= found["measured_seconds"] in found["step_seconds"][2:]
    assert [(each["device"], each["on"]) for each in found["devices"]] == [("gpu:0", "cpu"), ("gpu:1", "cpu")]
    busy = [each["busy"]["measured_seconds"] for each in found["devices"]]
    assert all(0 < each <= found["measured_seconds"] for each in busy)
    assert sum(each["measured_seconds"] for each in found["kinds"].values()) == pytest.approx(sum(busy))
    assert sum(each["transfers"] for each in found["links"].values()) == len(predicted.timeline.transfers)
    console = Console(width=140)
    with console.capture() as shown:
        console.print(run)
    said = shown.get()
    assert "Its first step is that of the unplaced model, but for rounding." in said
    assert "gpu:0>gpu:1" in said
    groups = {event["pid"] for event in json.loads(Path("both.json").read_text())["traceEvents"]}
    assert groups == {1, 2, 1 + len(GROUPS), 2 + len(GROUPS)}
    assert "measured" in Path("both.svg").read_text()
    _is_kept(Path("kept"), found, predicted)
    with pytest.raises(InputError, match="kept holds a run already"):
        placelab.run(given, "model.plan.json", cluster="p100x2", out="kept")


def _is_kept(kept: Path, found: dict[str, Any], predicted: SimulatedPlan) -> None:
    """The folder holds what was run, on what, and all that was found."""
    assert json.loads((kept / RESULT).read_text()) == found
    lines = [json.loads(line) for line in (kept / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == found["losses"]
    assert json.loads((kept / "meta.json").read_text())["versions"].keys() >= {"placelab", "torch", "python"}
    assert tomllib.loads((kept / "config.toml").read_text())["training"]["data"] == "net.py:data"
    command = (kept / "command.txt").read_text().split()
    assert command[:4] == ["placelab", "run", "net.py:model", f"kept/{PLAN}"]
    flags = dict(zip(command[4::2], command[5::2], strict=True))
    assert flags.keys() == {"--cluster", "--devices", "--steps", "--seed", "--data"}, "and none that was left as it is"
    assert (flags["--cluster"], flags["--steps"], flags["--seed"]) == ("p100x2", "4", "3")
    assert placelab.simulate("net.py:model", kept / PLAN, cluster="p100x2").plan == predicted.plan


@pytest.mark.usefixtures("started_once")
def test_a_plan_that_computes_something_else_ends_with_exit_code_4(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Difference("weights", 0.5, 0.25, "head.weight")
    monkeypatch.setattr("envs.running.measured_run.differences", lambda *_: (wrong,))
    words = ["placelab", "run", given, "model.plan.json", "--cluster", "p100x2", "--steps", "1"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        placelab.main()
    assert ended.value.code == 4
    said = " ".join(capsys.readouterr().err.split())
    assert "in the first step its weights differ by 0.25 of the largest, in 'head.weight'" in said


def test_the_example_of_the_document_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = (ROOT / "docs/running.md").read_text()
    [example] = [text for text in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "placelab.run(" in text]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "running.md", "exec"), {})
    said = capsys.readouterr().out
    assert " True\n" in said
    assert "gpu:0 " in said


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"model": "net.graph.json"}, "net.graph.json is a graph, and each process makes the model itself"),
        ({"model": (nn.Linear(2, 2), ())}, "an object of type tuple is given, and each process makes the model itself"),
        ({"plan": "none.plan.json"}, "none.plan.json"),
        ({"cluster": "p1000x2"}, "unknown cluster 'p1000x2'"),
        ({"steps": 0}, "steps is 0; expected a whole number >= 1"),
        ({"limit": 0}, "limit is 0; expected a whole number >= 1"),
        ({"devices": "cpu"}, "1 devices are given, and the plan has 'gpu:0', 'gpu:1'"),
        ({"devices": "cpu,gpu"}, "device 'gpu' cannot be used here"),
        ({"devices": "cpu,meta"}, "cpu, meta are of several kinds"),
        ({"data": "nowhere.py:data"}, "data: nowhere.py:data is no path/to/file.py:callable that exists"),
        ({"data": "net.py"}, "data: net.py is no path/to/file.py:callable that exists"),
        ({"chart": "chart.pdf"}, "must end in .png or .svg or .html"),
        ({"trace": "trace.txt"}, "must end in .json or .json.gz"),
        ({"out": "net.py"}, "net.py is a file; name a folder"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    keywords: dict[str, Any], sentence: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "run", lambda *_, **__: pytest.fail("started before it was refused"))
    with pytest.raises(InputError) as refused:
        placelab.run(**{"model": given, "plan": "model.plan.json", "cluster": "p100x2", **keywords})
    assert sentence in str(refused.value)
