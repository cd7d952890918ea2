"""The study of kinds of plans: what it concludes from measurements, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.plan_kinds import measure
from evaluation.studies.plan_kinds.__main__ import study
from evaluation.studies.plan_kinds.document import KindFindings
from evaluation.studies.plan_kinds.measure import DATA, KINDS, MIXTURE, PIPELINE, PLACEMENT, Found, Measured, rivals
from graphs.foundation.errors import InputError


def measured(devices: int, found: dict[str, float], *, unfit: tuple[str, ...] = ()) -> Measured:
    """A case where kinds take seconds, and some do not fit."""
    plans = tuple(
        Found(kind=kind, placer=kind, seconds=seconds, fits=kind not in unfit, peak_bytes=2.0**34, micro_batches=1)
        for kind, seconds in found.items()
    )
    return Measured(model="VGG-19", cluster="any", devices=devices, samples=10, budget=5, found=plans)


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


def test_every_kind_has_rivals_where_it_makes_sense() -> None:
    assert [kind for kind, _ in rivals(1)] == [PLACEMENT, DATA]
    assert {kind for kind, _ in rivals(2)} == {PLACEMENT, DATA, PIPELINE}
    assert {kind for kind, _ in rivals(4)} == set(KINDS)
    mixtures = {placer for kind, placer in rivals(8) if kind == MIXTURE}
    assert "gpipe:micro_batches=8,replicas=4" in mixtures
    assert "gpipe:micro_batches=8,replicas=2,order=early_backward_a" in mixtures


def test_a_study_says_when_which_kind_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MODELS", {"VGG-19": "vgg:layers=11,image=32,batch=16"})
    monkeypatch.setattr(measure, "CLUSTERS", {"P100, one server": {1: "p100:devices=1", 2: "p100:devices=2"}})
    with pytest.raises(InputError, match="no problem is measured yet"):
        study(out=tmp_path, budget=20, write_only=True)
    document = study(out=tmp_path, budget=20)
    written = document.read_text()
    assert (tmp_path / "plan_kinds.png").exists()
    assert written.count("| P100, one server | VGG-19 |") == 2
    assert "of 1 cases with several devices" in written
    assert study(out=tmp_path, budget=20).read_text() == written
