"""Annealing with a move of a user's file."""

from pathlib import Path

import numpy as np
import pytest

from graphs.files.load import load_cluster, load_graph
from graphs.foundation.by_name import build
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import Annealing

HEADER = "def move(problem, placement, generator, progress):\n    "


def problem() -> Problem:
    return Problem(load_graph("layered:seed=3,depth=4,breadth=4", groups=16), load_cluster("p100x2"))


def with_move(folder: Path, body: str) -> Annealing:
    file = folder / "moves.py"
    file.write_text(HEADER + body)
    found = build("placers", f"annealing:move={file}:move")
    assert isinstance(found, Annealing)
    return found


def test_a_move_that_changes_nothing_leaves_the_best_start(tmp_path: Path) -> None:
    still = with_move(tmp_path, "return placement").place(problem(), budget=200)
    assert still.simulations == 200
    few = with_move(tmp_path, "return placement").place(problem(), budget=20)
    np.testing.assert_array_equal(still.plan.placement, few.plan.placement)


def test_equal_seeds_give_equal_plans_and_moves_help(tmp_path: Path) -> None:
    body = "placement[generator.integers(len(placement))] = generator.integers(2)\n    return placement"
    first, again = (with_move(tmp_path, body).place(problem(), seed=5, budget=300) for _ in range(2))
    np.testing.assert_array_equal(first.plan.placement, again.plan.placement)
    still = with_move(tmp_path, "return placement").place(problem(), budget=300)
    assert first.curve[-1][1] <= still.curve[-1][1]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return placement[:3]", "expected a placement, 16 whole numbers, got int64 of shape"),
        ("return placement * 0.5", "got float64"),
        ("return placement + 2", "expected devices from 0 to 1"),
        ("return placement - 9", "expected devices from 0 to 1"),
        ("raise KeyError('no')", "KeyError"),
    ],
)
def test_what_is_no_placement_is_refused_by_name(body: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        with_move(tmp_path, body).place(problem(), budget=50)


def test_a_move_that_does_not_exist_is_refused_before_anything_is_placed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such Python file"):
        build("placers", f"annealing:move={tmp_path}/none.py:move")
