"""The study of planners: what it concludes from measurements, and a whole study, tiny."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.records.journal import records
from evaluation.studies.planners import __main__ as planners
from evaluation.studies.planners.__main__ import CAPTURED, Case, PlannerFindings, Planners
from graphs.foundation.errors import InputError
from tests.evaluation.some_records import record

SMALL = "transformer:layers=1,width=32,heads=2,sequence=8,batch=8,vocabulary=50"


def measured(model: str, ours: float, cluster: str = "any", **rivals: float) -> Case:
    """A case; a rival whose seconds are below nothing has a plan that does not fit."""
    name = f"{model}@{cluster}"
    plans = {rival: record(name, rival, abs(seconds), fits=seconds > 0) for rival, seconds in rivals.items()}
    return Case(CAPTURED, model, cluster, record(name, "planner", ours), plans)


def test_what_does_not_fit_is_no_rival_and_what_is_lost_is_said() -> None:
    gained = measured("a", 2.0, dapple=4.0, gpipe=-1.0)
    equal = measured("b", 3.0, dapple=3.0, gpipe=5.0)
    behind = measured("b", 4.0, "another", dapple=8.0, gpipe=2.0)
    findings = PlannerFindings([gained, equal, behind], {"a@any": 1.9, "b@any": 3.0})
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
    monkeypatch.setattr(planners, "MODELS", {"GPT": SMALL})
    monkeypatch.setattr(planners, "CLUSTERS", {"two P100": "p100:devices=2"})
    monkeypatch.setattr(planners, "LONGER", 2)
    with pytest.raises(InputError, match="no case is planned yet"):
        Planners(out=tmp_path, budget=20, write_only=True).write()
    document = Planners(out=tmp_path, budget=20).write()
    written = document.read_text()
    assert (tmp_path / "planners.png").exists()
    assert "It is behind a rival on 0 cases of 1." in written
    assert "times the budget, on 1 case, is better by more than 1% on" in written
    assert written.count("| GPT | two P100 |") == 1
    assert Planners(out=tmp_path, budget=20).write().read_text() == written


def test_a_study_is_of_a_users_loop_unless_another_way_of_running_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planners, "MODELS", {"GPT": SMALL})
    monkeypatch.setattr(planners, "CLUSTERS", {"two P100": "p100:devices=2"})
    monkeypatch.setattr(planners, "RIVALS", {"data parallelism": "data_parallel"})
    monkeypatch.setattr(planners, "LONGER", 2)
    usual = Planners(out=tmp_path, budget=5)
    ideal = replace(usual, runtime="ideal", cost_model="roofline")
    loop, other = usual.write(), ideal.write()
    assert (loop.name, other.name) == ("planners.md", "planners_ideal_roofline.md")
    assert "(`--runtime parallelize --cost-model roofline:efficiency=measured`)" in loop.read_text()
    assert "of the ideal machine" in other.read_text()
    assert "--budget 5 --runtime ideal --cost-model roofline\n" in other.read_text(), "the command makes it again"
    slow, fast = (
        next(each for each in records(tmp_path / f"planned{study.suffix}.jsonl") if each.placer == "data_parallel")
        for study in (usual, ideal)
    )
    assert slow.step_seconds > fast.step_seconds, "a host issues the ops, and no GPU has its peak"
    with pytest.raises(InputError, match="unknown runtime 'parallelise'"):
        replace(usual, runtime="parallelise").write()
    with pytest.raises(InputError, match="unknown precision 'half'"):
        replace(usual, precision="half").write()


def test_a_folder_without_the_profiles_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bert-48-pbs-2.txt is missing; --data is a folder with dapple/"):
        Planners(data=tmp_path, out=tmp_path / "out").write()
