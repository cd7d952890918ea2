"""The best rule: every placer that comes with placelab is a rule, a search, learned, or one device."""

import math

import pytest

from evaluation.comparing.comparison import Comparison
from evaluation.reporting.rules import OF_PLACEMENTS, RULES, BestRule, best_rules, rules_like, speedup_over_rules
from graphs.foundation import by_name
from tests.evaluation.some_records import LEARNED, SOME, record

SEARCHES = {
    "annealing", "exact", "genetic", "hill_climbing", "measured_search", "neural_lns", "planner", "random",
    "split_search",
}  # fmt: skip
NEITHER = {"default", "made_for", "single_device"}  # learned; another's plan; what all are compared with in any case


def test_every_placer_is_of_one_kind() -> None:
    names = set(by_name.built_in("placers"))
    learned = {name for name in names if {"LEARNED", "TRAINER"} & set(by_name.constants("placers", name))}
    assert set(RULES) == names - SEARCHES - NEITHER - learned


def test_only_rules_that_fit_are_beaten() -> None:
    comparison = Comparison((*SOME, record("large@two", "heft:x=1", 6.0), record("small@two", "single_device", 1.0)))
    assert best_rules(comparison) == [BestRule("metis", 4.0), BestRule("heft:x=1", 6.0)]
    assert speedup_over_rules(comparison, LEARNED).value == pytest.approx(math.sqrt(4.0 / 2.0 * 6.0 / 3.0))


def test_a_placer_of_op_placements_is_judged_among_such_rules_first() -> None:
    comparison = Comparison((*SOME, record("small@two", "data_parallel", 1.0, replicas=(2,))))
    like = rules_like(comparison, LEARNED)
    assert like == OF_PLACEMENTS
    small = comparison.problems.index("small@two")
    assert best_rules(comparison)[small] == BestRule("data_parallel", 1.0)
    assert best_rules(comparison, like)[small] != BestRule("data_parallel", 1.0)
    whole = Comparison((*SOME, record("small@two", LEARNED, 2.0, seed=1, replicas=(2,))))
    assert rules_like(whole, LEARNED) == RULES


def test_where_no_rule_fits_there_is_nothing_to_beat() -> None:
    comparison = Comparison(SOME[3:])
    assert best_rules(comparison) == [None]
    assert math.isnan(speedup_over_rules(comparison, LEARNED).value)
