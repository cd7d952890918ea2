"""The study of transfer: sets of problems, and what is concluded from plans."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from evaluation.records.record import Record
from evaluation.studies.transfer import sets as transfer_sets
from evaluation.studies.transfer.__main__ import (
    FROM_POLICY,
    SAMPLES,
    SEARCH,
    SetPlans,
    Transfer,
    TransferFindings,
    held_out,
)
from evaluation.studies.transfer.sets import HOME, OTHERS, PROFILES, SUITES, home_problems, sets
from evaluation.studies.transfer.tight_memory import least_peak, with_memory_of
from graphs.files.load import load_cluster
from graphs.files.splits import split
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.evaluation.some_records import record as some_record
from tests.oracle.toys import random_graph
from training.problems.mixed_knobs import mixed_graphs
from training.problems.random.kinds import KINDS

record = partial(some_record, budget=1)


def plans(who: str, *of: Record, name: str = "chain") -> SetPlans:
    return SetPlans(name, who, of)


def test_ratios_are_of_plans_that_fit() -> None:
    rivals = plans(
        "",
        record("a", "heft", 4.0), record("a", "metis", 2.0), record("a", SEARCH, 1.0, budget=100),
        record("b", "heft", 3.0), record("b", "metis", 1.0, fits=False), record("b", SEARCH, 3.0, budget=100),
        record("c", "heft", 1.0, fits=False), record("c", SEARCH, 5.0, budget=100),
    )  # fmt: skip
    policy = plans(
        "mine",
        record("a", "mine", 3.0), record("a", "mine", 1.5, budget=SAMPLES),
        record("b", "mine", 1.0, fits=False), record("b", "mine", 2.0, budget=SAMPLES),
        record("a", "mine", 1.2, budget=FROM_POLICY), record("b", "mine", 9.0, budget=FROM_POLICY, fits=False),
        record("c", "mine", 5.0), record("c", "mine", 4.0, budget=SAMPLES),
    )  # fmt: skip
    findings = TransferFindings([rivals], [policy])
    ((name, tables),) = findings.rows("mine").items()

    def ratio(over: str, under: str) -> float:
        return findings.ratio(tables, over, under).value

    assert (name, len(tables[0]["known"]), findings.worst(tables)) == ("chain", 3, 1.5)
    assert findings.fitting(tables) == [3, 2, 2, 3, 1]
    assert ratio("greedy", "metis") == pytest.approx(3 / 2), "METIS fits for one problem only"
    assert ratio("searched", "known") == pytest.approx(1.2 / 1)
    assert ratio("greedy", "cheap") == pytest.approx(3 / 2)
    assert ratio("best", "cheap") == pytest.approx((1.5 / 2 * 2 / 3) ** (1 / 2))
    assert ratio("greedy", "known") == pytest.approx((3 / 1 * 5 / 4) ** (1 / 2))
    assert ratio("best", "known") == pytest.approx((1.5 / 1 * 2 / 2 * 4 / 4) ** (1 / 3))
    assert ratio("cheap", "known") == pytest.approx((2 / 1 * 3 / 2) ** (1 / 2))


def test_several_sets_have_a_row_of_all() -> None:
    rivals = [plans("", record("a", "heft", 2.0), name=name) for name in ("chain", "tree")]
    mine = [plans("mine", record("a", "mine", value), name=name) for name, value in (("chain", 1.0), ("tree", 4.0))]
    findings = TransferFindings(rivals, mine)
    rows = findings.rows("mine")
    assert list(rows) == ["chain", "tree", "all"]
    assert findings.ratio(rows["all"], "greedy", "cheap").value == pytest.approx(1.0)
    assert sum(len(table["known"]) for table in rows["all"]) == 2


def test_an_order_is_compared_with_the_rule_on_the_same_problems() -> None:
    rivals = plans("", record("a", "heft", 9.0), record("b", "heft", 9.0), record("c", "heft", 9.0))
    mine, by_rule = (
        plans(who, *(record(name, who, seconds, budget=budget) for name, budget, seconds in every))
        for who, every in {
            "mine": [("a", 1, 2.0), ("b", 1, 3.0), ("a", SAMPLES, 1.0), ("c", SAMPLES, 4.0)],
            "mine:order=no": [("a", 1, 4.0), ("c", 1, 9.0), ("a", SAMPLES, 3.0), ("c", SAMPLES, 4.0)],
        }.items()
    )
    findings = TransferFindings([rivals], [mine, by_rule])
    assert findings.by_the_rule == {"mine": "mine:order=no"}
    ((name, tables),) = findings.ordered("mine").items()
    assert (name, len(tables[0]["known"])) == ("chain", 3)
    assert findings.ratio(tables, "greedy", "greedy by the rule").value == pytest.approx(1 / 2)
    assert findings.ratio(tables, "best", "best by the rule").value == pytest.approx((1 / 3 * 4 / 4) ** (1 / 2))
    assert TransferFindings([rivals], [by_rule]).by_the_rule == {}


def test_splits_have_different_problems_and_choices_see_no_profile() -> None:
    validation, test = (sets(split, 1, None) for split in ("validation", "test"))
    assert set(validation) - set(test) == {HOME}
    assert not {PROFILES, *SUITES} & set(validation)
    for name in (*KINDS, *OTHERS):
        for mine, other in zip(validation[name](), test[name](), strict=True):
            assert mine.graph.fingerprint != other.graph.fingerprint


def test_models_to_choose_by_are_mixed_from_what_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_name, "built_in", lambda folder: ("layered", "ptb", "nasnet"))

    def captured(spec: str) -> OpGraph:
        return replace(random_graph(20, zlib.crc32(spec.encode())), name=spec)

    monkeypatch.setattr(transfer_sets, "load_graph", captured)
    problems = home_problems()
    assert [len(problem.cluster) for problem in problems] == [4, 2], "ptb has no other mixtures, nasnet is kept aside"
    listed = {*split(["layered"], "train"), *split(["layered"], "test")}
    assert all(problem.graph.name.startswith("layered") and problem.graph.name not in listed for problem in problems)
    for seed in range(3):
        generator = np.random.default_rng((seed, *b"layered"))
        learned = [graph.name for graph in mixed_graphs("layered", 4, generator, captured)]
        assert not {problem.graph.name for problem in problems} & set(learned)


def test_least_peak_is_that_of_the_best_of_all_plans() -> None:
    problem = Problem(random_graph(6, 1), load_cluster("p100:devices=2"))
    simulator = Simulator(problem)
    peaks = [simulator.run(np.array(each)).peak_bytes.max() for each in product(range(2), repeat=6)]
    assert least_peak(problem) == min(peaks)
    tight = with_memory_of(problem, 1.1 * least_peak(problem))
    assert tight.cluster.memory_bytes.tolist() == [1.1 * min(peaks)] * 2


def test_the_sets_of_many_and_of_unequal_devices_have_them() -> None:
    chosen = sets("test", 2, None)
    assert all(len(problem.cluster) > 16 for problem in chosen["many_devices"]())
    assert all(len({*problem.cluster.devices}) > 1 for problem in chosen["unequal_devices"]())


def test_the_study_writes_its_document_and_resumes(tmp_path: Path) -> None:
    options = {"kinds": "chain", "count": 1, "searching": 10, "split": "validation", "out": tmp_path}
    path = Transfer(policies="sequential:untrained=yes", **options).write()  # type: ignore[arg-type]
    text = path.read_text()
    assert "| chain | 1 |" in text
    assert Transfer(policies="sequential:untrained=yes", write_only=True, **options).write().read_text() == text  # type: ignore[arg-type]


def test_of_each_policy_the_kinds_that_its_recipe_holds_out_can_be_had_alone() -> None:
    assert list(held_out("default", sets("test", 1, None))) == ["fan", "series_parallel", "elimination"]
    with pytest.raises(InputError, match="holds out no kinds of random graphs; none are unseen"):
        held_out("sequential:untrained=yes", sets("test", 1, None))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"split": "training"}, "training"),
        ({"kinds": "knots"}, "knots"),
        ({"count": 0}, "at least one problem"),
        ({"write_only": True}, "no set of split 'test' is done yet"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        Transfer(out=tmp_path, **asked).write()  # type: ignore[arg-type]
