"""What surrounds placelab changes no result: a user's own settings of other programs, and of Python."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import placelab
from graphs.files.load import load_graph
from graphs.foundation import by_name
from tests.front_door.test_command_line import GRAPH, ROOT

OWN = """
from graphs.clusters.p100 import build as p100
from placers.round_robin import build as round_robin


class Order:
    def priorities(self, problem, op_seconds):
        return list(range(len(problem.graph)))


def build(*, knob: int = 1):
    return round_robin()


def cards(*, devices: int = 2):
    return p100(devices=devices)


def order():
    return Order()


def model(width: int = 2):
    import torch

    return torch.nn.Linear(width, width), torch.zeros(2, width)
"""


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"} | variables
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["x.svg", "x.png"])
def test_a_figure_is_the_same_whatever_settings_of_matplotlib_a_user_has(name: str, tmp_path: Path) -> None:
    def drawn() -> bytes:
        placelab.show(GRAPH, draw=tmp_path / name)
        return (tmp_path / name).read_bytes()

    expected = drawn()
    own: dict[Any, object] = {
        "text.usetex": True,
        "font.size": 30,
        "savefig.dpi": 20,
        "axes.grid": True,
        "path.sketch": (1, 100, 2),
    }
    with mpl.rc_context(own):  # as in a matplotlibrc
        assert drawn() == expected


def test_a_backend_that_is_none_does_not_matter() -> None:
    code = "import evaluation.drawing, os, matplotlib as mpl; print(mpl.rcParams['backend'], os.environ['MPLBACKEND'])"
    done = run("-c", code, MPLBACKEND="nonsense")
    assert done.stdout.split()[-1] == "nonsense"
    assert done.stderr == ""
    assert run("-c", code, MPLBACKEND="pdf").stdout == "pdf pdf\n", "a user may have figures of his own"


COMMANDS = """
import sys, placelab
for words in ("list suites", "place --help"):
    sys.argv = ["placelab", *words.split()]
    try:
        placelab.main()
    except SystemExit as stop:
        print("ended with", stop.code, file=sys.stderr)
"""


def test_python_without_docstrings_runs_commands() -> None:
    assert run("-c", COMMANDS, PYTHONOPTIMIZE="2").stderr.count("ended with 0\n") == 2


@pytest.mark.parametrize("folder", ["lr=0.1", "a=b,c=d", "a b", "a:b"])
def test_a_file_of_ones_own_may_be_in_any_folder(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir()
    (Path(folder) / "mine.py").write_text(OWN)
    mine = f"{folder}/mine.py"
    assert len(load_graph(f"{mine}:model", training=False)) > 0
    model, placer, cluster = f"{mine}:model:width=3", f"{mine}:build:knob=2", f"{mine}:cards:devices=3"
    placed = placelab.place(model, placer=placer, cluster=cluster, order=f"{mine}:order", budget=1)
    assert placed.problem.runtime.order.name == f"{mine}:order"
    assert len(placed.problem.cluster) == 3


def test_a_knob_that_is_a_function_in_a_file_belongs_to_its_name() -> None:
    for spec in ("annealing:policy=mine.py:build", "resnet:resnet-50,file=mine.py:build", "a:b=1,c=mine.py:build"):
        assert by_name.own(spec) is None
    assert by_name.own("lr=0.1/mine.py:build:knob=3") == (Path("lr=0.1/mine.py"), "lr=0.1/mine.py:build", "knob=3")
