"""The study of regimes: equal seconds, which rival is best, and what holds; a whole one of tiny problems."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.simulation.simulator import Simulator, simulate
from evaluation.records.journal import records
from evaluation.records.record import Record
from evaluation.studies.frame import Frame
from evaluation.studies.regimes import __main__ as study
from evaluation.studies.regimes import equal_seconds, findings, rows
from evaluation.studies.regimes.__main__ import Regimes
from evaluation.studies.regimes.equal_seconds import GREEDY, SAMPLES, ComparedPlacers, journal_of, seconds_of
from evaluation.studies.regimes.findings import BEST_CHEAP, BEST_KNOWN, AtLimit, found_of
from evaluation.studies.regimes.rows import HUNDRED, KINDS, LONG, ROWS, TEN_SECONDS, THOUSAND, Row, row_problems
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers import default
from placers.annealing import Annealing
from tests.evaluation.some_records import record
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release
from training.problems.random.settings import World
from training.recipe import load_recipe

ONE, OTHER = "fan:number=0@row", "elimination:number=1@row"


def at_limit(given: dict[str, tuple[float, float]], taken: dict[str, float], long: float = 10.0) -> AtLimit:
    """Step times on two problems, where a plan of 1 s is known for both, by long searches unless these have 0 s."""
    entries = [
        (who, record(problem, who, seconds))
        for who, both in (given | {BEST_KNOWN: (1.0, 1.0)}).items()
        for problem, seconds in zip((ONE, OTHER), both, strict=True)
    ]
    row = Row("some", World(units=(8, 8)), {HUNDRED: 0.15})
    return AtLimit(row, HUNDRED, Frame.of(entries), {ONE: 1.0, OTHER: 4.0}, taken, long)


def test_the_best_rival_is_one_for_a_row_and_a_policy_that_takes_longer_does_not_count() -> None:
    given = {"annealing": (1.6, 2.0), "heft": (1.0, 4.0), GREEDY: (1.0, 1.0), SAMPLES: (1.6, 1.0)}
    found = at_limit(given, {GREEDY: 1.3, SAMPLES: 1.0})
    assert found.best_rival == "annealing"
    assert found.against(GREEDY).ratio.value == pytest.approx(1 / 3.2**0.5)
    assert (found.answer.form, found.answer.holds) == (SAMPLES, True)
    assert found.answer.gain == pytest.approx(1 - 0.5**0.5)
    assert not at_limit(given, {GREEDY: 1.3, SAMPLES: 2.0}).answer.holds
    assert not at_limit(given | {SAMPLES: (1.5, 1.9)}, {SAMPLES: 1.0}).answer.holds, "6% of 15"
    assert found.seconds == pytest.approx(2.0)


def test_headroom_is_what_the_best_known_plans_gain_over_the_best_rival() -> None:
    given = {"annealing": (1.25, 1.25), GREEDY: (1.25, 1.2)}
    found = at_limit(given, {GREEDY: 1.0})
    assert found.headroom.value == found.answer.headroom == pytest.approx(0.2)
    assert found.answer.in_words == "no"
    near = at_limit(dict.fromkeys(given, (1.1, 1.1)), {GREEDY: 1.0})
    assert near.answer.in_words == "no, more than the headroom"
    before = replace(near, long=0.0)
    assert (before.headroom.count, before.answer.in_words) == (0, "no"), "without long searches nothing is said"
    assert at_limit(given | {GREEDY: (1.0, 1.0)}, {GREEDY: 1.0}).answer.in_words == "yes"


def test_of_long_searches_counts_what_each_problem_had() -> None:
    def long(problem: str, seconds: float) -> Record:
        return record(problem, f"annealing:seconds={seconds}", 1.0, search_seconds=seconds)

    some = [long(ONE, 10.0), long(ONE, 1.0)]
    assert findings._least_long(some, [ONE]) == 10.0
    assert findings._least_long(some, [ONE, OTHER]) == 0.0
    assert findings._least_long([*some, long(OTHER, 2.0)], [ONE, OTHER]) == 2.0


def test_long_searches_have_more_seconds_for_more_units() -> None:
    seconds = {name: row.limits(10.0)[-1].seconds for name, row in ROWS.items()}
    assert [seconds[name] for name in ("units30", "units3500", "units10000", "heldout")] == [10.0, 35.0, 60.0, 10.0]
    assert ROWS["units10000"].limits(0.0) == [HUNDRED, THOUSAND, TEN_SECONDS]


def test_what_is_said_first_is_where_no_form_of_the_policy_is_as_fast_the_largest_loss_first() -> None:
    ahead, little, much = (
        at_limit({"heft": (2.0, 2.0), GREEDY: (seconds, seconds)}, {GREEDY: 1.0}) for seconds in (1.9, 2.1, 2.5)
    )
    rows = [findings.RowFindings(little.row, some, little.frame, little.long) for some in ([ahead, little], [much])]
    assert findings.behind(rows) == [much, little]


def test_seconds_are_the_least_that_annealing_takes() -> None:
    given = [
        record(ONE, "annealing", 1.0, budget=100, seed=seed, search_seconds=took)
        for seed, took in enumerate((3.0, 2.0))
    ]
    other = record(ONE, "annealing:seconds=1.0", 1.0, budget=10**9, search_seconds=1.0)
    assert seconds_of(HUNDRED, [*given, other]) == {ONE: 2.0}
    assert seconds_of(THOUSAND, given) == {}
    assert seconds_of(TEN_SECONDS, [other]) == {ONE: 10.0}


def test_cheap_placers_are_run_one_after_another_until_the_seconds_are_over() -> None:
    quick = record(ONE, "metis", 3.0, search_seconds=0.2)
    slower = record(ONE, "heft", 2.0, search_seconds=0.3)
    slowest = record(ONE, "kahip", 1.0, search_seconds=0.6)

    def best(seconds: float) -> list[tuple[str, Record]]:
        return list(findings._best_cheap([slowest, slower, quick], {ONE: seconds}))

    assert best(0.1) == best(0.4) == [(BEST_CHEAP, quick)]
    assert best(0.5) == best(1.0) == [(BEST_CHEAP, slower)]
    assert best(1.2) == [(BEST_CHEAP, slowest)]


def test_rows_are_of_kinds_held_out_and_of_the_sizes_that_they_name() -> None:
    for recipe in ("released", "world"):
        assert set(KINDS) <= set(load_recipe(recipe).problems.world.held_out)
    for name in ("units30", "devices2"):
        problems = row_problems(name, 3)
        assert [problem().name for problem in problems.values()] == list(problems)
        for make in problems.values():
            problem = make()
            bounds = ROWS[name].settings
            assert bounds is not None
            assert bounds.units[0] <= problem.graph.num_units <= bounds.units[1]
            assert len(problem.cluster) == bounds.devices[0]
            assert problem.runtime.name.startswith("parallelize")
    ideal = row_problems("units30", 1, runtime="ideal")
    assert [make().runtime.name for make in ideal.values()] == ["ideal"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two rows of tiny problems, a stand-in for the policy, and two cheap placers."""
    release(monkeypatch, tmp_path)
    settings = World(units=(8, 10), devices=(2, 2))
    some = {"few": Row("few", settings, {HUNDRED: 0.15}), "fewer": Row("fewer", settings, {HUNDRED: 0.0})}
    for module in (rows, equal_seconds, findings, study):
        monkeypatch.setattr(module, "ROWS", some)
    monkeypatch.setattr(equal_seconds, "CHEAP", ("heft", "single_device"))


def test_a_study_has_equal_seconds_and_goes_on_where_it_was_stopped(
    tiny: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    text = Regimes(rows="few,fewer", problems=2, long=0.0, out=out).write().read_text()
    assert text.count("| few | - |") == 1
    assert "| few | 2 |" in text
    assert "| fewer | 2 |" in text
    assert "--rows few,fewer --problems 2 --long 0.0 --policy default" in text
    found = records(journal_of(out, "few", HUNDRED))
    allowed = seconds_of(HUNDRED, found)
    for problem, seconds in allowed.items():
        limited = [each for each in found if each.problem == problem and "seconds=" in each.placer]
        assert len(limited) == 4
        assert all(f"seconds={seconds:g}" in each.placer for each in limited)
    findings_of_row, every = found_of("few", ComparedPlacers.of(["default"]), out, "")
    assert findings_of_row is not None
    assert len(every) == 2 * (4 + 3 + 4)
    assert findings_of_row.over_best_known(GREEDY).value >= 1.0
    (at,) = findings_of_row.limits
    assert len(at.frame.seconds[findings.COUNTED]) == 3, "each seed of the annealing that is timed"

    with_long = Regimes(rows="few,fewer", problems=2, long=0.02, out=out)
    text = with_long.write().read_text()
    assert {each.placer for each in records(journal_of(out, "few", LONG))} == {
        "annealing:seconds=0.02", "hill_climbing:seconds=0.02", "annealing:seconds=0.02,policy=default",
    }  # fmt: skip
    assert text.count("| few | 0.02 s |") == 1

    def nothing_is_left(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(equal_seconds, "compare", nothing_is_left)
    assert with_long.write().read_text() == text
    with pytest.raises(AssertionError):
        replace(with_long, long=0.03).write()
    (default.RELEASED / "policy.safetensors").write_bytes(b"another")
    with pytest.raises(InputError):
        Regimes(rows="few", problems=2, out=out).write()


def test_what_makes_no_sense_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    for options, message in (
        ({"rows": "units31"}, "unknown row of the study 'units31'; did you mean 'units30'"),
        ({"workers": 2}, "use --workers 1"),
        ({"long": -1.0}, "--long is -1; expected seconds >= 0"),
        ({"policy": ("default", "default")}, "given twice"),
        ({"policy": (str(tmp_path / "no"),)}, "there is no such folder"),
    ):
        with pytest.raises(InputError, match=message):
            Regimes(out=tmp_path / "out", **options).write()


@pytest.mark.parametrize("seed", range(3))
def test_the_least_memory_is_little_above_that_of_the_best_of_all_placements(seed: int) -> None:
    problem = Problem(random_graph(7, seed=seed), toy_cluster(2), "sgd")
    every = np.array(list(itertools.product(range(2), repeat=len(problem.units))))
    least = Simulator(problem).run_batch(every).peak_bytes.max(axis=1).min()
    found = rows.least_memory(problem)
    assert found <= least / max(rows.CUTS) * (1 + 1e-9)
    limited = replace(problem, cluster=problem.cluster.with_each_device(memory_bytes=found))
    assert simulate(limited, Annealing().place(limited, budget=2000).plan).fits


def test_a_row_of_tight_memory_has_problems_with_little_more_than_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {**ROWS, "tight": Row("tight", World(units=(8, 12), devices=(2, 2)), memory=1.05)}
    monkeypatch.setattr(rows, "ROWS", tiny)
    for make in row_problems("tight", 3).values():
        problem = make()
        (memory,) = set(problem.cluster.memory_bytes.tolist())
        assert memory == pytest.approx(1.05 * rows.least_memory(problem), rel=0.03)
