"""The study of starts: the order and the estimates that follow from made-up measurements, and a whole one, tiny."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from evaluation.studies.command import run
from evaluation.studies.starts import measure, searches
from evaluation.studies.starts.__main__ import study
from evaluation.studies.starts.document import StartsFindings
from evaluation.studies.starts.measure import KINDS, SUITE, Measured, Trial, measured
from evaluation.studies.starts.order import FIRST, UNFIT, Order, variant
from evaluation.studies.starts.searches import BUDGETS, Searched, all_starts, searched
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.search.starts import Estimate
from tests.oracle.toys import random_graph, toy_cluster

TINY = Problem(random_graph(12, seed=0), toy_cluster(2))
SIMULATION = 1e-5  # seconds


def piece(found: Mapping[str, tuple[float, float]], kind: str = "64", size: int = 100) -> Measured:
    """By placer, how many simulations it takes and what it finds, in seconds; 0 if that does not fit."""
    trials = tuple(
        Trial(name, SIMULATION * cost, seconds or 1.0, fits=seconds > 0) for name, (cost, seconds) in found.items()
    )
    return Measured(
        problem=f"{kind}{size}@x", kind=kind, ops=4 * size, units=size, devices=4, simulation_seconds=SIMULATION,
        trials=trials,
    )  # fmt: skip


def test_the_first_start_is_the_best_of_those_that_take_little_and_then_gain_per_second_counts() -> None:
    some = {"best": (2 * FIRST, 1.0), "good": (100.0, 2.0), "fast": (10.0, 2.2), "none": (1.0, 8.0)}
    found = [piece(some | {"other": (100.0, 8.0)}), piece(some | {"other": (100.0, 1.0)})]
    starts = Order(found).starts
    assert [start.placer for start in starts] == ["good", "other", "best"], "what never gains is no start"
    assert [start.after for start in starts] == pytest.approx([2.0, np.sqrt(2.0), 1.0])
    assert [start.gain for start in starts[1:]] == pytest.approx([np.log(2) / 2, np.log(2) / 2])


def test_a_plan_that_does_not_fit_counts_as_a_slow_one() -> None:
    found = [piece({"one": (10.0, 0.0), "other": (10.0, 1.0)}), piece({"one": (10.0, 1.0), "other": (10.0, 2.0)})]
    starts = Order(found).starts
    assert starts[0].placer == "other"
    assert Order(found).losses[0, 0] == np.log(UNFIT)
    assert [start.after for start in starts] == pytest.approx([np.sqrt(2.0), 1.0])


def test_of_variants_that_try_for_longer_or_shorter_one_is_a_start() -> None:
    assert variant("metis:seeds=24") == "metis" == variant("metis")
    assert variant("metis:default=true,seeds=3") == "metis:default=true"
    found = [
        piece({"metis": (100.0, 1.5), "metis:seeds=8": (10.0, 2.0)}),
        piece({"metis": (100.0, 3.0), "metis:seeds=8": (10.0, 1.0)}),
    ]
    assert [start.placer for start in Order(found).starts] == ["metis:seeds=8"]


def test_the_suite_has_no_say_in_the_order_but_in_the_estimates() -> None:
    deciding = piece({"one": (10.0, 1.0), "other": (10.0, 2.0)})
    judging = piece({"one": (10.0, 9.0), "other": (5000.0, 1.0)}, SUITE, 1000)
    order = Order([deciding, judging])
    assert [start.placer for start in order.starts] == ["one"]
    assert order.cost_of("other") == pytest.approx(10.0)
    law, missed = order.estimate("other")
    assert law.scale * 400**law.ops * 100**law.units * 4**law.devices == pytest.approx(10 * SIMULATION, rel=0.1)
    assert missed == pytest.approx(1.0, abs=1e-6)


def test_an_estimate_recovers_a_law_of_powers() -> None:
    law = Estimate(3e-6, 0.5, 0.25, 1.0)
    generator = np.random.default_rng(0)
    pieces = []
    for _ in range(40):
        ops, units, devices = (int(each) for each in generator.integers([100, 10, 2], [10_000, 100, 16]))
        seconds = law.scale * ops**law.ops * units**law.units * devices**law.devices
        pieces.append(
            Measured(
                problem="p", kind="64", ops=ops, units=units, devices=devices, simulation_seconds=1.0,
                trials=(Trial("placer", seconds, 1.0, fits=True),),
            )
        )  # fmt: skip
    found, missed = Order(pieces).estimate("placer")
    assert found == pytest.approx(law)
    assert missed == pytest.approx(1.0)


def test_every_candidate_is_measured_on_a_problem() -> None:
    pytest.importorskip("kahip")
    found = measured(lambda: TINY, "64", repeats=1)
    assert tuple(trial.placer for trial in found.trials) == measure.CANDIDATES
    assert (found.ops, found.units, found.devices) == (12, TINY.graph.num_units, 2)
    assert all(trial.seconds > 0 for trial in found.trials)


def test_searches_from_chosen_starts_are_those_of_the_placer() -> None:
    found = searched(TINY, 1, 50, chosen=True)
    result = Annealing().place(TINY, seed=1, budget=50)
    assert (found.step_seconds, found.fits) == (result.curve[-1][1], True)
    assert searched(TINY, 1, 50, chosen=False).starts == len(searches.ALL) == len(all_starts((TINY,), 50, 1).placements)


def test_a_document_says_what_is_faster_and_why_each_start_is_one() -> None:
    pieces = [piece({"metis": (10.0, 1.0)}), piece({"metis": (10.0, 1.0)}, size=200)]
    pairs = [Searched("p@x", 0, budget, chosen, 3, 0.1, 0.2, 2.0, 1.0 - chosen / 2, fits=True)
             for budget in BUDGETS for chosen in (False, True)]  # fmt: skip
    found = StartsFindings(pieces, pairs)
    against = found.against(BUDGETS[0])
    assert (against.ratio.value, against.wins, against.losses) == (0.5, 1, 0)
    assert found.seconds(BUDGETS[0], chosen=True) == (0.1, 0.2)
    assert not found.is_current


def test_a_whole_study_of_tiny_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "CANDIDATES", ("metis:seeds=2", "heft", "single_device"))
    monkeypatch.setattr(measure, "_problems", lambda kind, _: {kind: lambda: TINY})
    monkeypatch.setattr(searches, "suite_problems", lambda *_: {"p": lambda: TINY})
    monkeypatch.setattr(searches, "BUDGETS", (20,))
    monkeypatch.setattr("evaluation.studies.starts.document.BUDGETS", (20,))
    path = study(out=tmp_path, repeats=1, seeds=1)
    text = path.read_text()
    assert "python -m evaluation.studies.starts --repeats 1 --seeds 1" in text
    assert all(re.search(rf"^\| `{placer}` \|", text, re.MULTILINE) for placer in measure.CANDIDATES)
    assert re.search(r"^\| 20 \| \d\.\d{3}", text, re.MULTILINE)
    assert "are not these, or in another order" in text
    done = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/pieces/*.json")}
    assert len(done) == len(KINDS) + 1
    assert study(out=tmp_path, repeats=1, seeds=1).read_text() == text
    assert {file: file.stat().st_mtime_ns for file in done} == done, "what is done is not done again"


def test_the_command_refuses_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="at least one kind of problem"):
        study(out=tmp_path, repeats=0)
    with pytest.raises(InputError, match="no problem is measured yet"):
        study(out=tmp_path, write_only=True)
    monkeypatch.setattr("sys.argv", ["starts", "--kinds", "63"])
    with pytest.raises(SystemExit):
        run(study, "starts", None)
    assert "unknown kind of problem '63'" in capsys.readouterr().err
