"""The study of kinds of plans: what it concludes from measurements, and a whole study, tiny."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.records.journal import records
from evaluation.studies.plan_kinds import __main__ as plan_kinds
from evaluation.studies.plan_kinds.__main__ import (
    DATA,
    KINDS,
    MIXTURE,
    PIPELINE,
    PLACEMENT,
    Case,
    KindFindings,
    PlanKinds,
    placers,
)
from graphs.foundation.errors import InputError
from tests.evaluation.some_records import record


def measured(devices: int, found: dict[str, float], *, unfit: tuple[str, ...] = ()) -> Case:
    """A case where kinds take seconds, and some do not fit."""
    plans = (
        record("any", placers(4)[kind][0], seconds, fits=kind not in unfit, peak_bytes=(2.0**34,), samples=10)
        for kind, seconds in found.items()
    )
    return Case("VGG-19", "any", devices, tuple(plans))


def test_losses_come_first_and_what_does_not_fit_wins_nothing() -> None:
    lost = measured(2, {PLACEMENT: 3.0, DATA: 2.0, PIPELINE: 1.0}, unfit=(PIPELINE,))
    won = measured(4, {PLACEMENT: 1.0, DATA: 2.0, PIPELINE: 1.005})
    found = KindFindings([measured(1, {PLACEMENT: 9.0, DATA: 1.0}), lost, won])
    assert [(loss.case.devices, loss.ratio) for loss in found.slower(PLACEMENT, DATA)] == [(2, 1.5)]
    assert [(loss.case.devices, loss.ratio) for loss in found.slower(DATA, PLACEMENT)] == [(4, 2.0)]
    assert found.winners(lost) == [DATA]
    assert found.winners(won) == [PLACEMENT, PIPELINE], "they are equally fast"
    assert found.wins() == {DATA: 1, PLACEMENT: 1, PIPELINE: 1}
    assert found.unfit(PIPELINE) == [lost]
    assert found.mean(PLACEMENT, DATA) == pytest.approx((1.5 * 0.5) ** 0.5)
    assert found.cells(lost) == ["300.000", "**200.000**", "does not fit: 16.0 GiB", "-"]


def test_every_kind_has_placers_where_it_makes_sense() -> None:
    assert [kind for kind in KINDS if placers(1)[kind]] == [PLACEMENT, DATA]
    assert {kind for kind in KINDS if placers(2)[kind]} == {PLACEMENT, DATA, PIPELINE}
    assert all(placers(4).values())
    assert "gpipe:micro_batches=8,replicas=4" in placers(8)[MIXTURE]
    assert "gpipe:micro_batches=8,replicas=2,order=early_backward_a" in placers(8)[MIXTURE]


def test_a_study_says_when_which_kind_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_kinds, "MODELS", {"VGG-19": "vgg:layers=11,image=32,batch=16"})
    monkeypatch.setattr(plan_kinds, "CLUSTERS", {"P100, one server": {1: "p100:devices=1", 2: "p100:devices=2"}})
    with pytest.raises(InputError, match="no problem is measured yet"):
        PlanKinds(out=tmp_path, budget=20, write_only=True).write()
    document = PlanKinds(out=tmp_path, budget=20).write()
    written = document.read_text()
    assert (tmp_path / "plan_kinds.png").exists()
    assert written.count("| P100, one server | VGG-19 |") == 2
    assert "of 1 cases with several devices" in written
    assert PlanKinds(out=tmp_path, budget=20).write().read_text() == written


def test_a_study_is_of_a_users_loop_unless_another_way_of_running_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_kinds, "MODELS", {"VGG-19": "vgg:layers=11,image=32,batch=16"})
    monkeypatch.setattr(plan_kinds, "CLUSTERS", {"P100, one server": {2: "p100:devices=2"}})
    usual = PlanKinds(out=tmp_path, budget=5)
    ideal = replace(usual, runtime="ideal", cost_model="roofline")
    loop, other = usual.write(), ideal.write()
    assert (loop.name, other.name) == ("plan_kinds.md", "plan_kinds_ideal_roofline.md")
    assert "(`--runtime parallelize --cost-model roofline:efficiency=measured`)" in loop.read_text()
    assert "of the ideal machine" in other.read_text()
    assert "--budget 5 --runtime ideal --cost-model roofline\n" in other.read_text(), "the command makes it again"
    slow, fast = (
        next(each for each in records(tmp_path / f"plans{study.suffix}.jsonl") if each.placer == "data_parallel")
        for study in (usual, ideal)
    )
    assert slow.step_seconds > fast.step_seconds, "a host issues the ops, and no GPU has its peak"
    with pytest.raises(InputError, match="unknown runtime 'parallelise'"):
        replace(usual, runtime="parallelise").write()
    with pytest.raises(InputError, match="unknown precision 'half'"):
        replace(usual, precision="half").write()
