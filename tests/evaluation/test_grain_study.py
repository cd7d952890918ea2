"""The study of grain: what follows from made-up measurements, and a whole one, tiny."""

import re
from pathlib import Path

import numpy as np
import pytest

from evaluation.studies.grain import measure
from evaluation.studies.grain.__main__ import study
from evaluation.studies.grain.document import GrainFindings, findings
from evaluation.studies.grain.measure import OPS, Measured, Size, Trial, measured
from graphs.foundation.errors import InputError
from graphs.grouping import tie_ops
from tests.oracle.toys import random_graph, toy_cluster


def piece(problem: str, grain: int, found: dict[int, tuple[float, float]], order: str = "fifo") -> Measured:
    """By budget, processor seconds and step time."""
    trials = tuple(Trial(budget, 0, cpu, step, fits=step > 0) for budget, (cpu, step) in found.items())
    return Measured(
        problem=problem, order=order, grain=grain, ops=9, units=5, grouping_seconds=0.0, trials=trials
    )  # fmt: skip


def test_step_times_are_over_the_best_at_any_grain() -> None:
    pieces = [
        piece("a:1@x", 8, {10: (1.0, 4.0), 100: (4.0, 2.0)}), piece("a:1@x", OPS, {10: (1.0, 8.0), 100: (16.0, 1.0)}),
        piece("b:1@x", 8, {}), piece("b:1@x", OPS, {10: (1.0, 2.0), 100: (4.0, 2.0)}),
        piece("c:1@x", 8, {10: (1.0, 1.0)}),
    ]  # fmt: skip
    (found,) = findings(pieces)
    assert found.grains == [8, OPS]
    assert found.problems == ("a:1@x", "b:1@x"), "a problem counts once it is done at every grain"
    assert found.over_best(8, 10).value == pytest.approx(2.0), "4 and, as there are fewer units than groups, 1"
    assert found.over_best(OPS, 100).value == pytest.approx(1.0)
    assert found.over_best(OPS, 10, ["a:1@x"]).value == pytest.approx(8.0)
    assert found.cpu_seconds(OPS, 100) == 10.0
    assert found.families == {"a": ["a:1@x"], "b": ["b:1@x"]}


def test_at_equal_seconds_step_times_are_interpolated() -> None:
    coarse, fine = {10: (1.0, 4.0), 100: (4.0, 1.0)}, {10: (1.0, 8.0), 100: (16.0, 2.0)}
    found = GrainFindings("fifo", [piece("a:1@x", 8, coarse), piece("a:1@x", OPS, fine)])
    assert found.at_seconds(8, 2.0).value == pytest.approx(2.0)
    assert found.at_seconds(OPS, 4.0).value == pytest.approx(4.0)
    assert found.at_seconds(OPS, 8.0).count == 0, "the coarse one has no budget that takes so long"


def test_what_does_not_fit_has_no_ratio() -> None:
    found = GrainFindings("fifo", [piece("a:1@x", 8, {1: (1.0, 0.0)}), piece("a:1@x", OPS, {1: (1.0, 3.0)})])
    assert found.over_best(8, 1).count == 0
    assert found.at_seconds(OPS, 1.0).count == 0


def use_a_tiny_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(12, seed=0)
    monkeypatch.setattr(measure, "captured", lambda _: graph)
    monkeypatch.setattr(measure, "tied", lambda _, groups: tie_ops(graph, groups))
    monkeypatch.setattr(measure, "load_cluster", lambda _: toy_cluster(2))


def test_a_grain_of_more_groups_than_units_is_left_to_the_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    use_a_tiny_problem(monkeypatch)
    size = Size("gdp12", "metis", (0, 16), 1)
    coarse, fine, ops = (measured("g", "c", "fifo", grain, size) for grain in (4, 500, OPS))
    assert (coarse.units, fine.units, ops.units) == (4, 12, 12)
    assert [trial.budget for trial in coarse.trials] == [0, 16]
    assert not fine.trials
    assert np.isfinite([trial.step_seconds for trial in ops.trials]).all()


def test_a_whole_study_of_tiny_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_a_tiny_problem(monkeypatch)
    monkeypatch.setattr(measure, "suite_specs", lambda _: (("g", "c"),))
    options = {"grains": "4,50", "orders": "fifo,longest_path", "budgets": "5,20"}
    path = study(out=tmp_path, **options)  # type: ignore[arg-type]
    text = path.read_text()
    assert "python -m evaluation.studies.grain --grains 4,50 --orders fifo,longest_path" in text
    assert len(re.findall(r"^\| 20 \| \d\.\d{3} \| \d\.\d{3} \| \d\.\d{3} \|$", text, re.MULTILINE)) == 2
    done = {file: file.stat().st_mtime_ns for file in tmp_path.glob("pieces/*.json")}
    assert len(done) == 2 * 3
    study(out=tmp_path, **options)  # type: ignore[arg-type]
    assert {file: file.stat().st_mtime_ns for file in done} == done, "what is done is not done again"
    with pytest.raises(InputError, match="of another size"):
        study(out=tmp_path, budgets="5")


@pytest.mark.parametrize("grains", ["", "0", "64,x", "-3"])
def test_grains_that_are_no_numbers_are_refused(tmp_path: Path, grains: str) -> None:
    with pytest.raises(InputError, match="--grains is"):
        study(out=tmp_path, grains=grains)
