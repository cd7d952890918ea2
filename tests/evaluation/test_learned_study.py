"""The study of the learned placers: claims and simulations worked out by hand, and a whole one of tiny graphs."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.commands.load_placer import load_placer
from evaluation.comparing.task import Task
from evaluation.records.journal import JournalEntry
from evaluation.records.record import Failure, Record
from evaluation.studies.learned import __main__ as learned
from evaluation.studies.learned.__main__ import PLACERS, Learned
from evaluation.studies.learned.claims import CLAIMS, GDP, HDP, fewer_simulations, less_time, on_problems
from evaluation.studies.learned.document import DRAWN, save
from evaluation.studies.learned.suite import EXPERT, SuiteFindings
from evaluation.studies.problems import suite_problems
from graphs.files.suites import suite_specs
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.evaluation.some_records import record as some_record
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release

ONE, OTHER, THIRD = "a:x@two", "b:x@two", "c:x@two"
Curve = tuple[tuple[int, float], ...]


record = partial(some_record, simulations=40, search_seconds=1.5, lower_bound_seconds=0.1)


def searched(problem: str, placer: str, curve: Curve, seed: int = 0) -> Record:
    return record(problem, placer, curve[-1][1], seed=seed, curve=curve)


def some(
    *records: Record, problems: Sequence[str] = (ONE, OTHER), seeds: int = 1, failures: Sequence[Failure] = ()
) -> SuiteFindings:
    placers = tuple(dict.fromkeys([*(each.placer for each in records), *(each.placer for each in failures)]))
    return SuiteFindings("gdp12", tuple(problems), placers, seeds, records, failures)


def failure(problem: str, placer: str, seed: int = 0) -> Failure:
    return Failure(problem=problem, placer=placer, seed=seed, reason="it could not")


def test_simulations_are_counted_until_the_rivals_best_of_the_same_problem_and_seed() -> None:
    results = some(
        searched(ONE, HDP, ((10, 5.0), (400, 2.0))), searched(ONE, GDP, ((20, 3.0), (40, 2.0), (50, 1.0))),
        searched(OTHER, HDP, ((90, 4.0),)), searched(OTHER, GDP, ((10, 3.0),)),
    )  # fmt: skip
    fewer = results.fewer(GDP, HDP)
    assert fewer.ratio.value == pytest.approx(math.sqrt(400 / 40 * 90 / 10)), "equal is reached; the rival is not slow"
    assert (fewer.reached, fewer.pairs) == (2, 2)
    back = results.fewer(HDP, GDP)
    assert (back.ratio.count, back.reached, back.pairs) == (0, 0, 2)


def test_what_never_comes_so_far_is_a_pair_that_no_mean_holds() -> None:
    results = some(
        searched(ONE, HDP, ((100, 2.0),)), searched(ONE, GDP, ((10, 2.0),)),
        searched(OTHER, HDP, ((100, 2.0),)), searched(OTHER, GDP, ((10, 2.5),)),
        searched(ONE, HDP, ((100, 2.0),), seed=1), record(ONE, GDP, 1.0, seed=1, fits=False),
        searched(OTHER, HDP, ((100, 2.0),), seed=1),
        record(THIRD, HDP, 2.0, fits=False), searched(THIRD, GDP, ((10, 2.0),)),
        problems=(ONE, OTHER, THIRD), seeds=2,
    )  # fmt: skip
    fewer = results.fewer(GDP, HDP)
    assert fewer.ratio.value == pytest.approx(10)
    assert fewer.reached == 1
    assert fewer.pairs == 3, "where HDP found nothing there is nothing to reach, and one of GDP is not done"
    failed = some(searched(ONE, HDP, ((100, 2.0),)), failures=[failure(ONE, GDP)])
    assert (failed.fewer(GDP, HDP).reached, failed.fewer(GDP, HDP).pairs) == (0, 1), "a failure is no excuse"


def test_plans_that_do_not_fit_are_in_no_ratio_and_win_nothing() -> None:
    results = some(
        record(ONE, GDP, 2.0), record(ONE, GDP, 8.0, seed=1),
        record(ONE, EXPERT, 5.0), record(ONE, EXPERT, 5.0, seed=1),
        record(OTHER, GDP, 1.0), record(OTHER, GDP, 1.0, seed=1, fits=False),
        record(OTHER, EXPERT, 2.0), record(OTHER, EXPERT, 2.0, seed=1),
        record(THIRD, GDP, 3.0), record(THIRD, EXPERT, 1.0, fits=False),
        problems=(ONE, OTHER, THIRD), seeds=2,
    )  # fmt: skip
    assert results.frame.means[GDP].tolist() == pytest.approx([4.0, math.inf, 3.0])
    assert results.wins(GDP, EXPERT) == 2, "4 against 5, and where the expert does not fit"
    assert results.wins(EXPERT, GDP) == 1, "where a seed of GDP does not fit"
    assert results.frame.ratio(GDP, EXPERT).value == pytest.approx((2 / 5 * 8 / 5 * 1 / 2) ** (1 / 3))
    assert results.frame.ratio(GDP, EXPERT).count == 3
    assert results.unfit(GDP) == 1
    assert results.best_known.tolist() == [2.0, 1.0, 3.0]
    assert results.frame.ratio(EXPERT, results.best_known).value == pytest.approx((5 / 2 * 5 / 2 * 2 * 2) ** (1 / 4))


def test_equal_is_as_good_but_not_faster_and_where_neither_fits_nobody_is_good() -> None:
    results = some(
        record(ONE, GDP, 2.0), record(ONE, HDP, 2.0),
        record(OTHER, GDP, 2.0, fits=False), record(OTHER, HDP, 2.0, fits=False),
    )  # fmt: skip
    assert results.wins(GDP, HDP) == 0
    assert results.wins(GDP, HDP, or_equal=True) == 1


def against_expert(seconds: float, *, fits: bool = True) -> SuiteFindings:
    """GDP on two problems, faster than the expert by half on the first."""
    first = [record(ONE, GDP, 1.0), record(ONE, EXPERT, 2.0)]
    return some(*first, record(OTHER, GDP, seconds, fits=fits), record(OTHER, EXPERT, 2.0))


def test_claims_are_met_or_not_by_what_was_measured() -> None:
    assert on_problems(2)(against_expert(1.9), GDP, EXPERT) == ("2 of 2", "met")
    assert on_problems(2)(against_expert(2.1), GDP, EXPERT) == ("1 of 2", "not met")
    assert on_problems(1)(against_expert(2.1), GDP, EXPERT) == ("1 of 2", "met")
    assert less_time(0.71)(against_expert(2.0), GDP, EXPERT) == ("0.707 [0.500, 1.000]", "met")
    assert less_time(0.70)(against_expert(2.0), GDP, EXPERT).verdict == "not met"
    unfit = less_time(0.70)(against_expert(2.0, fits=False), GDP, EXPERT)
    assert unfit == ("0.500, 1 do not fit", "met in part")
    nothing_fits = some(record(ONE, GDP, 1.0, fits=False), record(ONE, EXPERT, 2.0))
    assert less_time(0.70)(nothing_fits, GDP, EXPERT) == ("-, 1 do not fit", "not met")
    failed = some(*against_expert(1.9).records[:2], record(OTHER, EXPERT, 2.0), failures=[failure(OTHER, GDP)])
    assert on_problems(2)(failed, GDP, EXPERT) == ("1 of 2", "not met")
    assert less_time(0.70)(failed, GDP, EXPERT) == ("0.500, 1 failed", "met in part")


def test_a_claim_of_fewer_simulations_is_met_in_part_where_some_never_come_so_far() -> None:
    both = [searched(problem, HDP, ((300, 2.0),)) for problem in (ONE, OTHER)]
    fast, slow = searched(ONE, GDP, ((20, 2.0),)), searched(OTHER, GDP, ((30, 3.0),))
    assert fewer_simulations(15)(some(*both, fast), GDP, HDP) == ("15.0 times, reached in 1 of 1", "met")
    in_part = fewer_simulations(15)(some(*both, fast, slow), GDP, HDP)
    assert in_part == ("15.0 times, reached in 1 of 2", "met in part")
    assert fewer_simulations(16)(some(*both, fast), GDP, HDP).verdict == "not met"
    assert fewer_simulations(15)(some(*both, slow), GDP, HDP) == ("reached in 0 of 1", "not met")
    no_best = some(record(ONE, HDP, 1.0, fits=False), fast)
    assert fewer_simulations(15)(no_best, GDP, HDP) == ("-", "not measured")


def test_the_claims_are_those_of_the_papers_about_placers_of_the_study() -> None:
    assert [claim.suite for claim in CLAIMS] == ["gdp12"] * 3 + ["placeto"] * 3
    specs = by_name.specs(PLACERS)
    assert {placer for claim in CLAIMS for placer in (claim.placer, claim.rival)} <= set(specs)
    assert set(DRAWN) <= set(specs)
    assert [placer for placer in specs if load_placer(placer).name != placer] == [], "known by name in the journal"
    empty = SuiteFindings("gdp12", (ONE,), (GDP, EXPERT), 1, [])
    assert CLAIMS[0].measured(empty) == ("-", "not measured")
    assert not CLAIMS[0].is_complete(empty)


def test_progress_is_a_mean_over_problems_from_where_each_has_a_plan_that_fits() -> None:
    results = some(
        searched(ONE, GDP, ((2, 8.0), (6, 2.0))), searched(OTHER, GDP, ((4, 4.0),)),
        record(THIRD, GDP, 1.0, fits=False),
        *(record(problem, EXPERT, 4.0) for problem in (ONE, OTHER, THIRD)), problems=(ONE, OTHER, THIRD),
    )  # fmt: skip
    ratios, problems = results.progress(GDP, np.array([1.0, 3.0, 4.0, 6.0, 100.0]))
    assert problems == 2, "on the third it found nothing that fits"
    assert ratios[0].tolist() == pytest.approx(
        [math.nan, math.nan, math.sqrt(2), math.sqrt(0.5), math.sqrt(0.5)], nan_ok=True
    )
    assert results.progress(EXPERT, np.ones(1))[1] == 0, "a rule has no curve"
    assert results.progress(HDP, np.ones(1))[1] == 0, "not done yet"


def test_what_is_missing_is_named_unless_it_failed_or_nobody_asked() -> None:
    results = some(
        record(ONE, GDP, 1.0), record(ONE, GDP, 1.0, seed=1), record(OTHER, GDP, 1.0, seed=1),
        record(ONE, GDP, 1.0, seed=2),
        seeds=2, failures=[failure(OTHER, GDP), failure(ONE, GDP), failure(THIRD, GDP)],
    )  # fmt: skip
    assert len(results.done) == 3, "two seeds were asked for"
    assert [each.problem for each in results.failed] == [OTHER], "another time it worked, or is of another suite"
    assert results.missing(GDP) == {}
    assert some(record(ONE, GDP, 1.0, seed=1), seeds=2).missing(GDP) == {ONE: [0], OTHER: [0, 1]}


def test_the_document_has_its_tables_and_says_what_does_not_fit(tmp_path: Path) -> None:
    results = some(
        record(ONE, GDP, 1.0), record(ONE, GDP, 1.0, seed=1, fits=False), record(OTHER, GDP, 0.03),
        record(ONE, EXPERT, 2.0), record(ONE, EXPERT, 2.0, seed=1), record(OTHER, EXPERT, 1.0, fits=False),
        record(THIRD, EXPERT, 1.0), problems=(ONE, OTHER, THIRD), seeds=2, failures=[failure(THIRD, GDP)],
    )  # fmt: skip
    text = save([results], tmp_path, "python -m study", budget=40, groups=64).read_text()
    assert "    python -m study\n" in text
    assert "Everyone may simulate 40 placements of a problem; 2 seeds; at most 64 op groups" in text
    assert "| gdp+finetuned | 0.500 | 1 of 3 | 1.000 | 1 of 3 | 40 | 1.5 |" in text
    assert "| a:x | two | 2.00 s | 0.500 (1 of 2 does not fit) |" in text
    assert "| b:x | two | does not fit | 30.0 ms |" in text
    assert "| c:x | two | 1.00 s | failed |" in text
    assert "at most 0.85 | 0.500, 1 do not fit, 1 failed | met in part so far |" in text
    assert "HDP's best with 15 times fewer simulations | - | not measured |" in text
    assert "- gdp+finetuned on c:x@two, seed 0, failed: it could not" in text
    assert "- gdp+finetuned is not done on `gdp12` with seed 1: b:x@two, c:x@two." in text
    assert "placeto |" not in text, "no claim about a suite that nobody asked for"
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_a_whole_document_misses_nothing_and_has_a_plot_once_there_are_curves(tmp_path: Path) -> None:
    plain = save([against_expert(1.9)], tmp_path, "python", budget=40, groups=64).read_text()
    assert "Nothing: every placer has placed every problem with every seed." in plain
    assert not (tmp_path / "learned_curves.png").exists()
    curves = [searched(problem, GDP, ((3, 2.0), (9, 1.0))) for problem in (ONE, OTHER)]
    results = some(*curves, record(ONE, EXPERT, 2.0), record(OTHER, EXPERT, 2.0))
    text = save([results], tmp_path, "python", budget=40, groups=64).read_text()
    assert "](learned_curves.png)" in text
    assert 0 < (tmp_path / "learned_curves.png").stat().st_size < 100_000


def _given(problem: Problem) -> Problem:
    return problem


QUICK = "annealing,hill_climbing,heft,human_expert"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str, int]]:
    """Two problems of few ops, a stand-in for the released policy; what is placed is noted, and HEFT fails on one."""
    release(monkeypatch, tmp_path)
    problems = [Problem(random_graph(6 + i, i), toy_cluster(2, memory=1e4)) for i in range(2)]
    named = {problem.name: partial(_given, problem) for problem in problems}
    monkeypatch.setattr(learned, "suite_problems", lambda suite, **_: named)
    noted: list[tuple[str, str, int]] = []
    do = Task.do

    def watched(work: Task) -> JournalEntry | Failure:
        if len(noted) == 3:
            noted.append(("", "stopped", 0))
            raise KeyboardInterrupt
        noted.append((work.shown_as, work.placer.name, work.seed))
        if noted[-1] == (problems[1].name, "heft", 1):
            return failure(problems[1].name, "heft", 1)
        return do(work)

    monkeypatch.setattr(Task, "do", watched)
    return noted


def test_a_study_goes_on_where_it_was_stopped_and_can_be_written_alone(
    tiny: Sequence[tuple[str, str, int]], tmp_path: Path
) -> None:
    given = Learned(suites="gdp12", placers=QUICK, budget=30, seeds=2, out=tmp_path / "out")

    def do(**others: Any) -> Path:
        return replace(given, **others).write()

    with pytest.raises(KeyboardInterrupt):
        do()
    stopped = do(write_only=True).read_text()
    assert "- human_expert is not done on `gdp12` with seeds 0, 1: every problem." in stopped
    assert "not measured" in stopped
    text = do().read_text()
    keys = [key for key in tiny if key[1] != "stopped"]
    assert len(keys) == len(set(keys)) == 2 * 4 * 2, "each placer on each problem with each seed, once"
    assert "seed 1, failed: it could not" in text
    assert "is not done" not in text
    assert (
        "--suites gdp12 --budget 30 --seeds 2 --groups 64 --placers annealing,hill_climbing,heft,human_expert" in text
    )
    assert (tmp_path / "out" / "learned_curves.png").is_file()
    again = do(write_only=True, document=tmp_path / "doc")
    assert again == tmp_path / "doc" / "learned.md"
    assert again.read_text() == text, "the failure was kept"
    do(placers="annealing")
    assert len(tiny) == 17, "nothing of it was left to do"
    assert "seed 1, failed: it could not" in do(write_only=True).read_text(), "nor forgotten"
    results = given.load_suite("gdp12")
    assert all(r.simulations <= 30 for r in results.done.values())
    with pytest.raises(InputError, match="nothing is done yet of gdp12"):
        do(budget=31, write_only=True)


def test_under_another_order_a_study_has_a_journal_and_a_document_of_its_own(
    tiny: Sequence[tuple[str, str, int]], tmp_path: Path
) -> None:
    given = Learned(suites="gdp12", placers="heft", budget=30, seeds=1, out=tmp_path)
    other = replace(given, order="longest-path")
    given.write()
    with pytest.raises(KeyboardInterrupt):
        other.write()
    found = other.write()
    placed = [key for key in tiny if key[1] != "stopped"]
    assert (found.name, len(placed)) == ("learned_longest_path.md", 4), "placed again, under the other order"
    assert "--order longest-path" in found.read_text()
    with pytest.raises(InputError, match="unknown order 'longest'"):
        replace(given, order="longest").write()


def test_a_study_is_of_known_suites_and_one_policy(tiny: Sequence[object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="at least one suite, one placer and one seed"):
        Learned(suites="", out=out).write()
    with pytest.raises(InputError, match="nothing is done yet of gdp12"):
        Learned(suites="gdp12", out=out, write_only=True).write()
    with pytest.raises(InputError, match="unknown suite 'gdp13'; did you mean 'gdp12'"):
        suite_problems("gdp13")
    out.mkdir()
    (out / "policy.sha256").write_text("0\n")
    with pytest.raises(InputError, match="is of another policy"):
        Learned(suites="gdp12", placers=QUICK, out=out).write()


def test_problems_are_known_by_name_before_a_model_is_captured() -> None:
    for suite, count in (("gdp12", 12), ("placeto", 6)):
        assert list(suite_problems(suite)) == [f"{graph}@{cluster}" for graph, cluster in suite_specs(suite)]
        assert len(suite_problems(suite)) == count
