"""The study of order: what follows from made-up measurements, and a whole one, tiny."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from envs.orders import GIVEN
from envs.plan import Plan
from envs.robustness import robustness
from envs.simulation.simulator import Simulator
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.command import run
from evaluation.studies.order import cases, defaults, rules, searches
from evaluation.studies.order.__main__ import study
from evaluation.studies.order.cases import Size, few
from evaluation.studies.order.defaults import EARLIER, NOW, Defaults, Placed
from evaluation.studies.order.document import save
from evaluation.studies.order.ranking_findings import RankingFindings
from evaluation.studies.order.rule_findings import RuleFindings, flipped
from evaluation.studies.order.rules import RULES, Clock, Ordered, Times, Timing, ordered
from evaluation.studies.order.search_findings import BEST_RULE, DefaultFindings, SearchFindings, targets
from evaluation.studies.order.searches import ALONE, JOINT, UNDER_FIFO, Search, Searched
from evaluation.studies.released.parts import BEST, GREEDY
from graphs.foundation.errors import InputError
from graphs.problem import DEFAULT_ORDER, FIFO, Problem
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release

ONE, OTHER, THIRD = "ptb:cell=1@two", "ptb:cell=2@two", "nmt:cell=1@two"
LONGEST, PROGRAM = DEFAULT_ORDER, "program"
TINY = random_graph(12, seed=0)


def times(seconds: float, *, fits: bool = True, worst: float = 1.0, free: float = 1.0, shaken: float = 1.0) -> Times:
    """Factors of the worst draw, of links without queues, and of the second of two draws."""
    return Times(
        seconds=seconds, fits=fits, median=seconds, worst=worst * seconds, free=free * seconds,
        ties=(seconds, seconds), shaken=(seconds, shaken * seconds),
    )  # fmt: skip


def piece(problem: str, found: Mapping[str, Mapping[str, Times]]) -> Ordered:
    """By placer and order; whatever rule a placer is given, it makes the same plan."""
    timings = [
        Timing(placer=placer, made=made, order=order, times=known)
        for placer, orders in found.items() for made in RULES for order, known in orders.items()
        if made == FIFO or order in (made, GIVEN)
    ]  # fmt: skip
    return Ordered(problem=problem, ops=10, units=5, timings=tuple(timings))


def under(fifo: float, program: float, longest: float, own: float | None = None) -> dict[str, Times]:
    handed_on = {} if own is None else {GIVEN: times(own)}
    return {FIFO: times(fifo), PROGRAM: times(program), LONGEST: times(longest)} | handed_on


def test_the_same_plans_are_compared_over_placers_and_then_over_problems() -> None:
    found = RuleFindings([
        piece(ONE, {"metis": under(2.0, 2.0, 1.0), "heft": under(4.0, 2.0, 4.0)}),
        piece(THIRD, {"metis": under(1.0, 1.0, 2.0)}),
    ])  # fmt: skip
    assert found.over_fifo(LONGEST, [ONE]).value == pytest.approx(math.sqrt(1 / 2))
    assert found.over_fifo(LONGEST).value == pytest.approx((1 / 2) ** (1 / 4) * 2 ** (1 / 2)), (
        "each problem counts once"
    )
    assert found.same_plans("metis", LONGEST).wins == found.same_plans("metis", LONGEST).losses == 1
    assert [found.is_best(rule) for rule in RULES] == pytest.approx([1 / 3, 2 / 3, 1 / 3]), "equal ones are both best"
    assert found.best_rule([ONE]) in (PROGRAM, LONGEST)
    assert found.best_rule([THIRD]) == FIFO
    ((family, rule, ratio),) = found.better_elsewhere(LONGEST)
    assert (family, rule) == ("nmt", FIFO)
    assert ratio == pytest.approx(2.0)


def test_robustness_is_over_the_step_without_noise_and_over_fifo() -> None:
    fragile = times(1.0, worst=2.0, free=0.5)
    found = RuleFindings([piece(ONE, {"metis": {FIFO: fragile, PROGRAM: times(2.0), LONGEST: times(0.5, worst=1.1)}})])
    fifo, longest = found.robust(FIFO), found.robust(LONGEST)
    assert (fifo.worst.value, fifo.worst_of_all, fifo.free.value, fifo.freest) == pytest.approx((2.0, 2.0, 0.5, 0.5))
    assert (longest.worst.value, longest.worst_step.value) == pytest.approx((1.1, 0.55 / 2))
    assert (longest.step.value, longest.noisy_step.value, longest.best) == (0.5, 0.5, 1.0)
    assert found.robust(GIVEN).step.count == 0
    assert math.isnan(found.robust(GIVEN).worst_of_all)


def test_who_loses_from_the_default_order_is_named_and_list_schedulers_count_with_their_own() -> None:
    found = RuleFindings([
        piece(ONE, {"metis": under(1.0, 1.0, 1.02), "heft": under(1.0, 1.0, 3.0, own=0.9)}),
        piece(THIRD, {"metis": under(1.0, 1.0, 1.009), "heft": under(1.0, 1.0, 0.5, own=2.0)}),
    ])  # fmt: skip
    assert [(placer, family) for placer, family, _ in found.exceptions] == [("heft", "nmt"), ("metis", "ptb")]
    assert found.as_handed_on("heft", [ONE]).ratio.value == 0.9
    assert found.as_handed_on("heft", [THIRD]).losses == 1


def test_a_plan_that_does_not_fit_has_no_ratio() -> None:
    unfit = {FIFO: times(1.0), PROGRAM: times(1.0), LONGEST: times(0.1, fits=False)}
    found = RuleFindings([piece(ONE, {"metis": unfit}), piece(OTHER, {"metis": under(1.0, 1.0, 0.5)})])
    assert found.over_fifo(LONGEST).value == 0.5
    assert found.same_plans("metis", LONGEST).unfit == 1


def test_rankings_of_two_rules_are_alike_or_opposite() -> None:
    found = RankingFindings(RuleFindings([
        piece(problem, {GREEDY: under(1.0, 1.0, 3.0), "metis": under(2.0, 2.0, 2.0), "heft": under(3.0, 3.0, 1.0)})
        for problem in (ONE, OTHER)
    ]))  # fmt: skip
    assert [found.rank(placer, FIFO) for placer in (GREEDY, "metis", "heft")] == [1, 2, 3]
    assert [found.rank(placer, LONGEST) for placer in (GREEDY, "metis", "heft")] == [3, 2, 1]
    assert found.over_best("metis", LONGEST).value == pytest.approx(2.0)
    alike = {one.rules: (one.overall, one.each.value, one.flips) for one in found.likenesses}
    assert alike[FIFO, PROGRAM] == (1.0, 1.0, 0.0)
    assert alike[FIFO, LONGEST] == (-1.0, -1.0, 1.0)
    assert [pair.placers for pair in found.changed] == [(GREEDY, "heft"), (GREEDY, "metis"), ("heft", "metis")]
    assert found.against(GREEDY, "best cheap", LONGEST).ratio.value == pytest.approx(3.0)


def test_equal_times_flip_with_nothing() -> None:
    one, other = np.array([[1.0, 1.0, np.nan], [1.0, 2.0, 1.0]]), np.array([[2.0, 3.0, 1.0], [1.0, 1.0, 2.0]])
    assert flipped(one, other) == 1 / 2


def test_ties_move_plans_and_placers() -> None:
    moving = {rule: times(1.0, shaken=1.5) for rule in RULES}
    found = RuleFindings([piece(ONE, {GREEDY: moving, "metis": under(1.2, 1.2, 1.2)})])
    shaken, ties = found.moved(FIFO, "shaken", "a little"), found.moved(FIFO, "ties", "ties")
    assert (shaken.largest, shaken.share, shaken.flips) == (1.5, 0.5, 0.5)
    assert shaken.typical == pytest.approx(math.sqrt(1.5))
    assert shaken.policy == pytest.approx((1 / 1.2, 1.5 / 1.2))
    assert (ties.largest, ties.share, ties.flips) == (1.0, 0.0, 0.0)


def search(problem: str, joint: float, alone: float, fifo: float, budget: int = 1000) -> Searched:
    found = {JOINT: joint, ALONE: alone, UNDER_FIFO: fifo}
    return Searched(
        problem=problem, budget=budget,
        found=tuple(Search(what=what, seed=0, seconds=seconds, fits=True) for what, seconds in found.items()),
    )  # fmt: skip


def default_of(problem: str, now: float, earlier: Mapping[str, float], cpu: float = 1.0) -> Defaults:
    steps = {NOW: (now, {LONGEST: now}, cpu), EARLIER: (earlier[FIFO], dict(earlier), 2.0)}
    found = tuple(
        Placed(
            what=what, seed=0, seconds=seconds, fits=True, by_rule=by_rule, median=seconds, worst=1.1 * seconds,
            free=seconds, cpu_seconds=cpu_seconds, simulations=1000, units=64,
        ) for what, (seconds, by_rule, cpu_seconds) in steps.items()
    )  # fmt: skip
    return Defaults(problem=problem, budget=1000, found=found)


def test_searches_and_defaults_meet_their_targets_or_lose() -> None:
    found = SearchFindings([search(ONE, 0.5, 1.0, 2.0), search(THIRD, 1.5, 1.0, 2.0)])
    assert found.against(JOINT, UNDER_FIFO, 1000, [ONE]).ratio.value == 0.25
    assert found.losses(1000) == [(THIRD, 1.5)]
    assert found.lost_families(1000) == [("nmt", 1.5)]
    placed = DefaultFindings([
        default_of(ONE, 0.5, {FIFO: 1.0, PROGRAM: 0.8, LONGEST: 0.9}),
        default_of(THIRD, 1.0, {FIFO: 1.1, PROGRAM: 1.2, LONGEST: 0.5}),
    ])  # fmt: skip
    assert placed.over(EARLIER, 1000, [ONE]).ratio.value == 0.5
    assert placed.over(BEST_RULE, 1000, [ONE]).ratio.value == pytest.approx(0.5 / 0.8)
    assert placed.lost_problems(BEST_RULE, 1000) == [(THIRD, 2.0)] != placed.lost_problems(EARLIER, 1000)
    assert placed.lost_families(BEST_RULE, 1000) == [("nmt", 2.0)]
    assert placed.cpu_over(1000).ratio.value == 0.5
    assert placed.suites(["gdp12"]) == {"all": [ONE, THIRD]}
    assert placed.robust(NOW, 1000).worst.value == pytest.approx(1.1)
    verdicts = [target.verdict for target in targets(found, placed)]
    assert verdicts == ["met", "not met", "met", "met", *["not measured"] * 4]


def test_a_document_says_who_loses_first(tmp_path: Path) -> None:
    names = (GREEDY, BEST, *CHEAP)
    some = RuleFindings([piece(ONE, {name: under(1.0 + i, 1.0 + i, 2.0) for i, name in enumerate(names)})])
    found = SearchFindings([search(ONE, 1.5, 1.0, 2.0)])
    placed = DefaultFindings([default_of(ONE, 1.3, {FIFO: 1.0})])
    text = save(some, found, placed, folder=tmp_path, command="python", size=Size(64, 1), suites=["gdp12"]).read_text()
    assert "- slower families (1): `ptb` (1.300)." in text
    assert f"- slower problems (1): `{ONE}` (1.500)." in text
    assert "| no cheap placer loses on any family from `longest_path` | 1.01 | 0 exceptions | met |" in text
    assert text.index("## What loses") < text.index("## Fixed rules") < text.index("## The default of `place`")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One graph under two names, and a stand-in for the policy."""
    release(monkeypatch, tmp_path)
    pairs = (("random12:a=1", "p100:devices=2"), ("random12:a=2", "p100:devices=2"))
    monkeypatch.setattr(cases, "suite_specs", lambda _: pairs)
    for module, name in ((rules, "tied"), (searches, "tied"), (defaults, "captured")):
        monkeypatch.setattr(module, name, lambda *_: TINY)


def test_times_are_those_of_the_simulator_and_of_robustness() -> None:
    problem = Problem(TINY, toy_cluster(2))
    plan = Plan.of_units(problem, np.arange(problem.graph.num_units) % 2)
    found = {rule: Clock(problem).times(plan, rule) for rule in RULES}
    for rule, each in found.items():
        robust = robustness(problem, Plan(plan.devices, rule))
        assert each.seconds == Simulator(problem, order=rule).seconds(plan.per_unit(problem)[None])[0]
        assert (each.median, each.worst, each.free) == (
            robust.median_seconds, robust.worst_seconds, robust.free_seconds
        )  # fmt: skip
    numbers = tuple(np.arange(len(TINY), dtype=float).tolist())
    assert Clock(problem).times(plan, numbers).seconds > 0


def test_plans_made_under_fifo_are_run_under_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "PLACERS", ("heft", "single_device", "human_expert"))
    found = ordered(Problem(TINY, toy_cluster(2)))
    runs = {(each.placer, each.made, each.order) for each in found.timings}
    assert {("single_device", FIFO, rule) for rule in RULES} < runs
    assert {("single_device", rule, rule) for rule in RULES} < runs
    assert ("single_device", LONGEST, FIFO) not in runs
    assert {("heft", rule, GIVEN) for rule in RULES} < runs, "as its schedule has it"


@pytest.mark.usefixtures("tiny")
def test_a_whole_study_of_tiny_problems(tmp_path: Path) -> None:
    again = partial(study, suites="placeto", budgets="20", out=tmp_path / "out")
    text = again().read_text()
    assert "python -m evaluation.studies.order --suites placeto --budgets 20 --groups 256 --seeds 1" in text
    assert all(f"| `{placer}` |" in text for placer in CHEAP)
    assert "| 20 | all (2) |" in text
    done = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("*/pieces/*.json")}
    assert len(done) == 3 * 2
    assert again().read_text() == text
    assert {file: file.stat().st_mtime_ns for file in done} == done, "what is done is not done again"
    assert again(parts="", document=tmp_path / "doc").read_text() == text
    with pytest.raises(InputError, match="of another size"):
        again(seeds=2)


def test_few_problems_of_each_family_are_spread() -> None:
    pairs = [(f"ptb:cell={cell}", "two") for cell in range(5)] + [("nmt:cell=1", "two")]
    assert few(pairs, None) == pairs
    assert few(pairs, 2) == [pairs[0], pairs[4], pairs[5]]
    assert few(pairs, 1) == [pairs[0], pairs[5]]


@pytest.mark.usefixtures("tiny")
def test_the_command_refuses_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for suites, budgets in (("", "1"), ("gdp12", "many")):
        with pytest.raises(InputError, match="at least one suite, simulation"):
            study(suites=suites, budgets=budgets, out=tmp_path / "out")
    with pytest.raises(InputError, match="holds no study"):
        study(parts="", out=tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["order", "--parts", "rule"])
    with pytest.raises(SystemExit):
        run(study, "order", None)
    assert "unknown part of the study 'rule'; did you mean 'rules'" in capsys.readouterr().err
