"""The study of fidelity: what it concludes from predictions and measurements."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.measuring.calibration import spread_plan, uneven_pipeline
from evaluation.studies.fidelity.__main__ import Fidelity
from evaluation.studies.fidelity.cases import MOVED, PLACERS, cases
from evaluation.studies.fidelity.document import Agreement, FidelityFindings, save
from evaluation.studies.fidelity.measure import (
    SINGLE,
    SPREAD,
    UNEVEN,
    FidelityPlan,
    MeasuredModel,
    fitted,
    plain_cluster,
)  # fmt: skip
from evaluation.studies.pictures.__main__ import Pictures
from graphs.cluster import Cluster
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.foundation.files import locked
from graphs.problem import Problem


def model(name: str, **plans: tuple[float, float, tuple[float, ...]]) -> MeasuredModel:
    """Plans by name: predicted before and after calibration, and measured in rounds."""
    return MeasuredModel(
        model=name, spec="spec", ops=3, rounds=2, processes=2, machine="a machine", refused=("one: why",),
        plans=tuple(
            FidelityPlan(name=each, kind="op placement", predicted={"plain": a, "calibrated": b}, measured=measured)
            for each, (a, b, measured) in plans.items()
        ),
    )  # fmt: skip


def test_agreement_is_rank_error_bias_and_regret() -> None:
    found = Agreement.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1.0, 3.0, 5.0]))
    assert found.spearman == pytest.approx(0.8)  # 1 - 6 (1 + 1) / (4 (16 - 1))
    assert found.error == pytest.approx((0.2 + 0.5) / 2)
    assert found.bias == pytest.approx((-0.2 + 0.0) / 2)
    assert found.regret == 1.0
    assert not found.holds
    assert Agreement.of(np.array([1.0, 2.0]), np.array([1.05, 2.0])).holds


def test_the_document_says_which_models_fail(tmp_path: Path) -> None:
    good = model("good", a=(0.5, 1.0, (1.0, 1.0)), b=(1.0, 2.0, (2.0, 2.1)), c=(2.0, 3.0, (3.0, 3.1)))
    bad = model("bad", a=(0.5, 3.0, (1.0, 1.0)), b=(1.0, 2.0, (2.0, 2.0)), c=(2.0, 1.0, (3.0, 3.0)))
    findings = FidelityFindings([good, bad])
    assert findings.failing("calibrated") == [bad]
    assert findings.worst(bad, "calibrated") == ("a", 2.0)
    assert findings.by_kind("calibrated")["op placement"][0] == 6
    assert findings.repeatable(good) == pytest.approx(1.0)
    text = save(findings, tmp_path, "the command").read_text()
    assert "1 of 2 models; not on bad." in text
    assert "| b | op placement | 2000.0 | 1000.0 | 2000.0 |" in text
    assert (tmp_path / "fidelity.png").exists()


def test_plans_are_of_all_kinds_and_each_there_once() -> None:
    spec = "transformer:layers=2,width=16,heads=2,sequence=8,batch=8,vocabulary=64"
    problem = timed(Problem(load_graph(spec, with_law=True), load_cluster("p100:devices=2")), "roofline")
    found = list(cases(problem))
    assert {case.name for case in found} <= {*PLACERS, *(f"annealing, {share:.0%} moved" for share in MOVED)}
    assert len({case.plan for case in found}) == len(found) >= 10
    micro_batches = [case.plan.schedule.micro_batches for case in found]
    assert {1, 2, 4} == set(micro_batches)
    assert any(len(devices) == 2 for case in found for devices in case.plan.devices)


def test_nothing_begins_without_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--cluster FILE"):
        Fidelity(out=tmp_path).write()
    with pytest.raises(InputError, match="no model was run yet"):
        Fidelity(out=tmp_path, write_only=True).write()


def with_costs(cluster: Cluster, runner: float, message: float, per_byte: float, per_pass: float = 0.0) -> Cluster:
    devices = tuple(
        replace(
            device, runner_seconds=runner, message_seconds=message, message_seconds_per_byte=per_byte,
            pass_seconds=per_pass,
        )
        for device in cluster.devices
    )  # fmt: skip
    return replace(cluster, devices=devices)


def test_two_processes_do_not_fill_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(InputError, match=rf"process \({os.getpid()}\) is writing {tmp_path}; wait"):
        Pictures(out=tmp_path).write()


def test_calibration_finds_the_runner_the_messages_and_the_passes_that_made_the_steps() -> None:
    spec = "transformer:layers=2,width=16,heads=2,sequence=8,batch=8,vocabulary=64"
    cluster = load_cluster("p100:devices=2")
    given = with_costs(cluster, 0.0, 2e-5, 1e-9)
    plain = timed(Problem(load_graph(spec, with_law=True), plain_cluster(given)), "roofline")
    assert plain.cluster.devices == cluster.devices
    real = replace(plain, cluster=with_costs(given, 3e-5, 5e-5, 2.5e-9, 1e-3))
    uneven = uneven_pipeline(plain)
    assert uneven is not None
    plans = {SINGLE: Plan.of([0] * len(plain.graph)), SPREAD: spread_plan(plain), UNEVEN: uneven}
    found = fitted(
        "model", plain, given, plans, {name: simulate(real, plan).step_seconds for name, plan in plans.items()}
    )
    without = fitted(
        "model", plain, given, {name: plans[name] for name in (SINGLE, SPREAD)}, {SINGLE: 1e-3, SPREAD: 1e-3}
    )
    assert all(device.pass_seconds == 0 for device in without.devices)
    for device in found.devices:
        assert device.pass_seconds == pytest.approx(1e-3, rel=0.05)
        assert device.runner_seconds == pytest.approx(3e-5, rel=1e-3)
        assert device.message_seconds == pytest.approx(5e-5, rel=0.02)
        assert device.message_seconds_per_byte == pytest.approx(2.5e-9, rel=0.02)
