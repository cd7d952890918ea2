"""The study of gains: what is kept of a gain, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.gains import cases
from evaluation.studies.gains.__main__ import study
from evaluation.studies.gains.document import GainFindings
from evaluation.studies.gains.measure import Measured, Run
from graphs.foundation.errors import InputError


def run(planned: float, *others: float, order: str = "longest_path") -> Run:
    first_come, program, issued, deferred = others
    return Run(
        placer="heft", order=order, planned=planned, first_come=first_come, program=program, issued=issued,
        deferred=deferred, moved=0,
    )  # fmt: skip


def test_what_is_kept_is_a_part_of_the_gain() -> None:
    runs = (run(6.0, 8.0, 7.0, 11.0, 6.0), run(9.9, 1.0, 1.0, 1.0, 1.0), run(5.0, 5.0, 5.0, 9.0, 6.0, order="program"))
    model = Measured(model="a", spec="any", cluster="any", budget=5, ops=3, alone=10.0, runs=runs)
    found = GainFindings([model])
    assert found.gain(model, runs[0]) == 0.4
    assert found.gaining(model) == [runs[0]]  # the second gains 1%
    kept = {way: found.kept(model, runs[0], way) for way in ("first_come", "program", "issued", "deferred")}
    assert kept == {"first_come": 0.5, "program": 0.75, "issued": -0.25, "deferred": 1.0}
    assert found.median("issued") == -0.25
    assert [program for _, program in found.of_program(model)] == [runs[2]]


def test_a_study_of_gains_says_what_each_way_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MODELS", {"RNN": "rnnlm:layers=2,steps=3,batch=32"})
    monkeypatch.setattr(cases, "PLANS", (("annealing", "longest_path"), ("annealing", "program")))
    with pytest.raises(InputError, match="no model is placed yet"):
        study(out=tmp_path, budget=200, write_only=True)
    document = study(out=tmp_path, budget=200)
    written = document.read_text()
    assert written.count("\n| RNN |") == 2
    assert "\n| median |" in written
    assert study(out=tmp_path, budget=200, write_only=True).read_text() == written
