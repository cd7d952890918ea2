"""The study of searches that begin with a policy: what follows from measurements, and a whole one, tiny."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evaluation.studies.grain import measure as grain_measure
from evaluation.studies.grain.measure import OPS, Measured, Trial
from evaluation.studies.pieces import PIECES
from evaluation.studies.policy_searches import measure
from evaluation.studies.policy_searches.__main__ import study
from evaluation.studies.policy_searches.document import Findings
from evaluation.studies.policy_searches.measure import FEW, GRAINS, SHORT, Who, frame_of, sizes
from graphs.foundation.errors import InputError
from graphs.grouping import tie_ops
from tests.oracle.toys import random_graph, toy_cluster

LONG = 2000


def write(out: Path, who: Who, grain: int, found: dict[int, float]) -> None:
    """A piece with a step time by budget; 0 does not fit."""
    trials = tuple(Trial(budget, 0, 1.0, step, fits=step > 0) for budget, step in found.items())
    piece = Measured(
        problem="a:1@x", order="any", grain=grain, ops=9, units=99, grouping_seconds=0.0, trials=trials
    )  # fmt: skip
    (out / who / PIECES).mkdir(parents=True, exist_ok=True)
    (out / who / PIECES / f"{grain}.json").write_bytes(msgspec.json.encode(piece))


def test_step_times_are_over_those_at_the_same_grain_and_over_one_reference(tmp_path: Path) -> None:
    for grain in GRAINS:
        few = grain == 256  # as many groups as that are more than the units
        write(tmp_path, Who.METIS, grain, {} if few else {1: 4.0})
        write(tmp_path, Who.POLICY, grain, {} if few else {1: 3.0, FEW: 0.0})
        write(tmp_path, Who.FROM_CHEAP, grain, {} if few else {SHORT: 2.0, LONG: 2.0 if grain == OPS else 1.0})
        write(tmp_path, Who.FROM_POLICY, grain, {} if few else {SHORT: 2.0, LONG: 1.0})
    write(tmp_path, Who.REFERENCE, OPS, {LONG: 5.0})
    found = Findings(frame_of(tmp_path, sizes("mine", "curves", LONG, 1)), LONG)
    assert found.over_metis(Who.POLICY, 1, 64).value == pytest.approx(3 / 4)
    assert found.over_long(Who.FROM_POLICY, SHORT, 64).value == pytest.approx(2.0)
    assert found.over_long(Who.FROM_POLICY, SHORT, 256).value == pytest.approx(1.0), "256 groups are op by op"
    assert found.over_reference(Who.FROM_POLICY, LONG, 256).value == pytest.approx(1 / 5)
    assert found.over_reference(Who.POLICY, FEW, 64).count == 0, "no sample fits"


def test_the_study_measures_and_writes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(12, seed=0)
    for module in (measure, grain_measure):
        monkeypatch.setattr(module, "captured", lambda _: graph)
    monkeypatch.setattr(grain_measure, "tied", lambda _, groups: tie_ops(graph, groups))
    monkeypatch.setattr(grain_measure, "load_cluster", lambda _: toy_cluster(2))
    monkeypatch.setattr(grain_measure, "suite_specs", lambda _: [("toy:1", "x")])
    monkeypatch.setattr(measure, "suite_specs", lambda _: [("toy:1", "x")])
    text = study(searching=20, out=tmp_path).read_text()
    assert "1 problem of `curves`" in text
    assert text.count("| the policy | 16 |") == 3
    assert study(searching=20, out=tmp_path).read_text() == text


def test_nothing_is_searched_without_simulations(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one simulation"):
        study(searching=0, out=tmp_path)
