"""The study of planners: what it concludes from measurements, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.planners import cases, measure
from evaluation.studies.planners.__main__ import study
from evaluation.studies.planners.cases import CAPTURED
from evaluation.studies.planners.document import PlannerFindings
from evaluation.studies.planners.measure import Found, Longer, Measured
from graphs.foundation.errors import InputError


def found(planner: str, seconds: float, *, fits: bool = True) -> Found:
    """A plan that takes seconds."""
    return Found(
        planner=planner, seconds=seconds, fits=fits, peak_bytes=1.0, took=0.0, simulations=1, notes=("a note.",)
    )  # fmt: skip


def measured(model: str, ours: float, cluster: str = "any", **rivals: float) -> Measured:
    """A case; a rival whose seconds are below nothing has a plan that does not fit."""
    plans = tuple(found(name, abs(seconds), fits=seconds > 0) for name, seconds in rivals.items())
    return Measured(
        source=CAPTURED, model=model, cluster=cluster, budget=5, rivals=plans, ours=found("planner", ours),
        refused=(),
    )  # fmt: skip


def test_what_does_not_fit_is_no_rival_and_what_is_lost_is_said() -> None:
    gained = measured("a", 2.0, dapple=4.0, gpipe=-1.0)
    equal = measured("b", 3.0, dapple=3.0, gpipe=5.0)
    behind = measured("b", 4.0, "another", dapple=8.0, gpipe=2.0)
    longer = [
        Longer(model=model, cluster="any", budget=5, found=found("planner", seconds))
        for model, seconds in (("a", 1.9), ("b", 3.0))
    ]
    findings = PlannerFindings([gained, equal, behind], longer)
    assert [findings.ratio(case) for case in findings.cases] == [0.5, 1.0, 2.0]
    assert findings.behind() == [behind]
    assert findings.equal() == [equal]
    assert [case for case, _ in findings.gaps()] == [gained, equal], "the others have no longer search"
    assert findings.far() == [(gained, 2.0 / 1.9)]
    assert findings.mean(CAPTURED).value == pytest.approx((0.5 * (1.0 * 2.0) ** 0.5) ** 0.5), "a model counts once"
    assert findings.mean(CAPTURED, "gpipe").count == 1, "what does not fit has no ratio"
    assert findings.lacking(CAPTURED, "gpipe") == 1
    assert findings.wins() == {"dapple": 2, "gpipe": 1}
    cells = [findings.cell(gained, rival) for rival in ("dapple", "gpipe", "other")]
    assert cells == ["2.00", "does not fit", "refused"]


def test_a_study_of_planners_says_what_is_gained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MODELS", {"VGG": "vgg:layers=11,image=32,batch=16"})
    monkeypatch.setattr(cases, "CLUSTERS", {"two P100": "p100:devices=2"})
    monkeypatch.setattr(measure, "LONGER", 2)
    with pytest.raises(InputError, match="no case is planned yet"):
        study(out=tmp_path, budget=20, write_only=True)
    document = study(out=tmp_path, budget=20)
    written = document.read_text()
    assert (tmp_path / "planners.png").exists()
    assert "It is behind a rival on 0 cases of 1." in written
    assert "times the budget, on 1 case, is better by more than 1% on" in written
    assert written.count("| VGG | two P100 |") == 1
    assert study(out=tmp_path, budget=20).read_text() == written


def test_a_folder_without_the_profiles_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bert-48-pbs-2.txt is missing; --data is a folder with dapple/"):
        study(data=tmp_path, out=tmp_path / "out")
