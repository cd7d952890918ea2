import math

import pytest

from evaluation.comparing.comparison import Comparison
from evaluation.reporting.findings import fastest_other, findings, than, tuning_findings
from tests.evaluation.some_records import LEARNED, SOME, record

TUNED = f"{LEARNED}+finetuned"


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.88, "12% less time than metis"),
        (1.04, "4% more time than metis"),
        (1.001, "the same time as metis"),
        (2.5, "2.5 times as long as metis"),
        (math.nan, "a time that cannot be compared, because no problem has a fitting plan of both"),
    ],
)
def test_ratios_in_words(ratio: float, words: str) -> None:
    assert than(ratio, "metis") == words


def test_wins_and_losses_are_both_named() -> None:
    text = " ".join(findings(Comparison(SOME), LEARNED))
    assert "gdp is the fastest of 3 placers on 1 of 2 problems, and its plan always fits in memory." in text
    assert (
        "Fewer than 5 problems, too few to say which is ahead, have fitting plans of it and of metis (0.50), " in text
    )
    assert "annealing (1.26). The numbers are" in text
    assert "Over the problems where both fit" not in text
    assert "gains most on small@two: 20% less time than the best other placer" in text
    assert "loses most on large@two: 2.0 times as long as the best other placer" in text


def test_a_policy_that_always_loses_is_said_to_lose() -> None:
    seconds = {LEARNED: (3.0,), "heft": (2.0,), "metis": (6.0,), "annealing": (1.0, 9.0)}
    records = [record(f"p{i}@c", who, some[i % len(some)]) for who, some in seconds.items() for i in range(6)]
    text = " ".join(findings(Comparison(tuple(records)), LEARNED))
    assert "fastest of 4 placers on 0 of 6 problems" in text
    assert "faster than metis (0.50); not clearly apart from annealing (1.00); slower than heft (1.50)" in text
    assert "gains" not in text


def test_a_policy_that_does_not_fit_is_said_not_to_fit() -> None:
    records = (record("p@c", LEARNED, 1.0, fits=False), record("p@c", "heft", 2.0))
    said = findings(Comparison(records), LEARNED)
    assert "Its plan does not fit in memory on p@c." in said
    assert "not comparable with heft (-)" in " ".join(said)


def test_alone_there_is_nothing_to_compare() -> None:
    assert findings(Comparison(SOME[:1]), LEARNED) == ["There is no other placer to compare with."]


def test_fine_tuning_is_compared_with_before_and_with_the_best_other() -> None:
    records = (*SOME[3:], record("large@two", TUNED, 2.0, simulations=500))
    text = " ".join(tuning_findings(Comparison(records), LEARNED, TUNED))
    assert fastest_other(Comparison(records), LEARNED, TUNED) == "annealing", "not METIS, whose plan does not fit"
    assert "with 500 simulations brings the step from 3.00 s to 2.00 s: 33% less time than before" in text
    assert "fastest other placer is annealing, with 1,000 simulations" in text
    assert "next to it the fine-tuned policy takes 33% more time." in text


def test_fine_tuning_of_what_does_not_fit_has_no_gain() -> None:
    records = (record("p@c", LEARNED, 1.0, fits=False), record("p@c", TUNED, 2.0))
    assert "no plan fits" in tuning_findings(Comparison(records), LEARNED, TUNED)[0]
