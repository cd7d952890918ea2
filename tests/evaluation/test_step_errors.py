"""Errors to expect of step times: said where they were measured, by the cost model and on the GPU at hand."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envs.costs.costs import load_cost_model, timed
from envs.costs.efficiency_file import load_efficiencies
from evaluation.comparing.comparison import Comparison
from evaluation.records.step_errors import FEWEST, StepError, StepErrors, step_errors, timing_remarks, written
from evaluation.studies.measured.findings import Compared, VariantFindings, step_errors_of
from evaluation.studies.measured.predictions import Prediction
from evaluation.studies.measured.questions import WITHOUT, another_file, is_asked
from evaluation.studies.measured.rows import Row
from evaluation.studies.measured.variants import VARIANTS
from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue, device
from graphs.problem import Problem
from tests.evaluation.some_records import record
from tests.oracle.toys import toy_graph

MEASURED = "roofline:efficiency=measured"


def on(*names: str, cost_model: str = MEASURED) -> Problem:
    named = tuple(replace(device(name), name=f"{name}:{number}") for number, name in enumerate(names))
    links, one_bus = np.ones((len(named), len(named))), np.zeros((len(named), len(named)), np.int64)
    return timed(Problem(toy_graph([1.0], []), Cluster("c", named, links, links, one_bus)), cost_model)


@pytest.fixture
def some_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"h100": StepError(19, 0.041, 0.2), "p4": StepError(FEWEST - 1, 0.1, 0.2)}
    errors = StepErrors({MEASURED: measured}, {MEASURED: StepError(73, 0.09, 0.4)})
    monkeypatch.setattr("evaluation.records.step_errors.step_errors", lambda: errors)


@pytest.mark.usefixtures("some_errors")
def test_an_error_is_said_of_gpus_with_enough_steps() -> None:
    said = "Error to expect of steps on one h100: ±4% in the median, 20% at most, by 19 that were measured."
    assert timing_remarks(on("h100")) == [said]
    assert timing_remarks(on("h100", "h100", "p4")) == [said]
    assert timing_remarks(on("p4")) == []


@pytest.mark.usefixtures("some_errors")
def test_nothing_is_said_of_other_gpus_and_cost_models() -> None:
    assert timing_remarks(on("h200")) == [
        "GPUs: times of h200:0 by the shares of the peak that were measured on h100. Their steps may be off by "
        "±9% in the median, 40% at most: so were 73 steps of other GPUs, estimated in this way. For architectures "
        "that are further away the error is not known."
    ]
    assert timing_remarks(on("h100", cost_model="roofline")) == []
    assert timing_remarks(on("h100", cost_model="roofline:efficiency=typical")) == []


def test_the_file_is_of_cost_models_and_gpus_that_exist() -> None:
    assert step_errors().by_another.keys() == step_errors().measured.keys()
    for cost_model, by_gpu in step_errors().measured.items():
        load_cost_model(cost_model)
        assert by_gpu.keys() <= catalogue().devices.keys()
        assert all(0 <= each.median <= each.largest for each in by_gpu.values())


def test_a_comparison_says_what_its_records_know_once() -> None:
    records = [record("g", placer, 1.0, cost_model=MEASURED, timing_remarks=("Off.",)) for placer in ("a", "b")]
    assert Comparison(tuple(records)).timing == (f"Cost model: {MEASURED}.", "Off.")


def test_errors_are_those_of_measured_shares_on_one_gpu() -> None:
    def compared(measured: float, gpus: int) -> Compared:
        row = Row(
            id="r", source="somebody", use="score", kind="gpt", model="m", phase="step", precision="fp32",
            global_batch=1, gpus=gpus, gpu="H100-SXM-80GB", seconds=measured,
        )  # fmt: skip
        return Compared(row, Prediction(row="r", variant="v", asked="", seconds=1.0))

    rows = [compared(1.0, 1), compared(0.8, 1), compared(2.0, 1), compared(100.0, 2)]
    errors = step_errors_of([VariantFindings(each, rows) for each in VARIANTS])
    off = StepError(3, 0.25, 0.5)  # 0, +25% and -50%
    assert errors == StepErrors({MEASURED: {"h100": off}}, {MEASURED: off})
    assert "steps = 3" in written(errors)


def test_a_gpu_is_timed_by_another_of_its_architecture_or_the_one_before_it() -> None:
    measured = load_efficiencies("measured")
    taken = measured.measured_as()
    assert (taken["a10"], taken["rtx3090"], taken["l4"], taken["t4"]) == (*["a100-40gb-pcie"] * 2, *["p4"] * 2)
    assert WITHOUT.keys() == measured.gpus.keys()
    assert all(other in measured.gpus and other != gpu for gpu, other in WITHOUT.items())


def test_a_gpu_as_if_it_was_not_measured_has_the_shares_of_the_other(tmp_path: Path) -> None:
    without = load_efficiencies(str(another_file("h100", tmp_path)))
    assert "h100" not in without.gpus
    assert {without.measured_as()[gpu] for gpu in ("h100", "h200", "b200")} == {"a100-40gb-pcie"}
    by_another = VARIANTS[-1]
    row = Row(
        id="r", source="somebody", use="score", kind="gpt", model="m", phase="step", precision="fp32",
        global_batch=1, gpu="H100-SXM-80GB", seconds=1.0,
    )  # fmt: skip
    asked = [is_asked(each, by_another) for each in (row, msgspec.structs.replace(row, gpus=2))]
    assert asked == [True, False]
