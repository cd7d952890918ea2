"""`--batch`: the samples of a step, on every verb that simulates; and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import placelab
from graphs.descriptions.another_batch import with_batch
from graphs.files.load import load_graph
from graphs.formats.graph_file import save_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.evaluation.some_records import to_text
from tests.oracle.toys import random_graph

MODEL = "rnnlm:layers=1,steps=2,hidden=64,vocabulary=100,batch=16"
WITH_8 = MODEL.replace("16", "8")


def test_another_batch_is_the_model_with_that_batch() -> None:
    placed = placelab.place(MODEL, cluster="p100x2", placer="heft", groups=None, batch=8, objective="throughput")
    same = placelab.place(WITH_8, cluster="p100x2", placer="heft", groups=None, objective="throughput")
    assert placed.problem.graph.fingerprint != load_graph(MODEL).fingerprint
    assert placed.problem.graph.flops.tolist() == same.problem.graph.flops.tolist()
    assert placed.timeline.step_seconds == same.timeline.step_seconds
    value = placed.record.objective_value
    assert value is not None
    assert value == same.record.objective_value == placed.timeline.step_seconds / 8
    assert f"Its throughput is {1 / value:,.1f} samples/s." in to_text(placed)


def test_a_plan_is_simulated_with_its_own_batch_and_with_another(tmp_path: Path) -> None:
    file = tmp_path / "one.plan.json"
    placed = placelab.place(MODEL, cluster="p100x2", placer="heft", batch=8, out=file)
    with pytest.raises(InputError, match="with other ops or costs"):
        placelab.simulate(MODEL, file, cluster="p100x2")
    again = placelab.simulate(MODEL, file, cluster="p100x2", batch=8, objective="latency")
    assert again.timeline.step_seconds == placed.timeline.step_seconds
    text = to_text(again)
    assert 0 < text.index("Its latency is") < text.index("A lower bound for")
    placelab.place(MODEL, cluster="p100x2", placer="heft", out=file)
    own = placelab.simulate(MODEL, file, cluster="p100x2", runtime="ideal").timeline
    other = placelab.simulate(MODEL, file, cluster="p100x2", runtime="ideal", batch=64).timeline
    assert other.placement.tolist() == own.placement.tolist()
    assert other.step_seconds > own.step_seconds


def test_ops_are_divided_with_another_batch_as_with_the_models_own(tmp_path: Path) -> None:
    file = tmp_path / "one.plan.json"
    placed = placelab.place(MODEL, cluster="p100x2", placer="tofu", batch=8, out=file)
    same = placelab.place(WITH_8, cluster="p100x2", placer="tofu")
    assert any(placed.plan.split)
    assert placed.plan.split == same.plan.split
    assert placed.timeline.step_seconds == same.timeline.step_seconds
    placelab.place(MODEL, cluster="p100x2", placer="tofu", out=file)
    again = placelab.simulate(MODEL, file, cluster="p100x2", batch=4)
    assert again.plan.split == placelab.place(MODEL, cluster="p100x2", placer="tofu").plan.split


def test_comparisons_take_it_and_rank_by_the_time_per_sample() -> None:
    found = placelab.compare(
        [MODEL, WITH_8], clusters=["p100x2"], placers=["heft", "single_device"], batch=4, objective="throughput"
    )
    assert len({record.step_seconds for record in found.records if record.placer == "single_device"}) == 1
    assert "Time per sample, less is better." in " ".join(to_text(found).split())
    one = placelab.compare([MODEL], clusters=["p100x2"], placers=["single_device"], objective="throughput")
    assert "samples/s" in to_text(one)


def test_a_module_with_its_inputs_is_captured_with_two_batches() -> None:
    model = (nn.Linear(4, 4), (torch.zeros(8, 4),))
    half, whole = (placelab.place(model, cluster="p100x2", placer="heft", batch=batch) for batch in (4, 8))
    law = half.problem.graph.batch_law
    assert law is not None
    assert law.knows_ops
    assert law.samples == 4
    assert half.problem.graph.flops[0] == whole.problem.graph.flops[0] / 2


def test_what_has_no_batch_is_refused(tmp_path: Path) -> None:
    save_graph(random_graph(9, 1), file := tmp_path / "one.graph.json")
    with pytest.raises(InputError, match="does not say how many samples its step has; name its file as FILE:batch=N"):
        placelab.place(file, cluster="p100x2", placer="heft", batch=4)
    placed = placelab.place(f"{file}:batch=8", cluster="p100x2", placer="heft", batch=4)
    assert placed.problem.graph.flops.tolist() == (load_graph(file).flops / 2).tolist()
    with pytest.raises(InputError, match="batch is 0; expected a whole number >= 1"):
        placelab.place(MODEL, batch=0)


@pytest.mark.parametrize(("placer", "knows"), [("dapple:micro_batches=2", True), ("heft", False)])
def test_a_placer_that_divides_the_batch_knows_what_grows_with_it(placer: str, knows: bool) -> None:
    placed = placelab.place(MODEL, cluster="p100x2", placer=placer, objective="throughput")
    law = placed.problem.graph.batch_law
    assert law is not None
    assert law.knows_ops == knows
    assert law.samples == 16


def test_a_captured_file_knows_its_batch_and_if_asked_what_grows_with_it(tmp_path: Path) -> None:
    placelab.capture(MODEL, out=tmp_path / "bare.graph.json")
    summary = placelab.capture(MODEL, out=tmp_path / "known.graph.json", batch=8)
    assert summary.samples == 8
    assert 0 < summary.fixed_bytes_accessed < summary.bytes_accessed
    assert "8; " in to_text(summary)
    bare, known = (load_graph(tmp_path / f"{name}.graph.json") for name in ("bare", "known"))
    assert bare.batch_law is not None
    assert known.batch_law is not None
    assert (bare.batch_law.samples, bare.batch_law.knows_ops) == (16, False)
    assert (known.batch_law.samples, known.batch_law.knows_ops) == (8, True)
    assert with_batch(known, 16).fingerprint == bare.fingerprint


def test_recorded_times_are_of_the_models_own_batch(tmp_path: Path) -> None:
    ops = [{"kind": kind, "seconds": {"gpu": 0.004}} for kind in sorted(set(load_graph(MODEL).kinds))]
    times = {"schema": "placelab.times", "version": 1, "ops": ops}
    (tmp_path / "times.json").write_text(json.dumps(times))
    own, half = (
        placelab.place(
            MODEL, cluster="p100x2", placer="heft", cost_model=f"recorded:file={tmp_path / 'times.json'}", batch=batch
        ).problem
        for batch in (None, 8)
    )
    assert own.op_seconds is not None
    assert half.op_seconds is not None
    factor = np.where(own.graph.phase >= Phase.UPDATE, 1.0, 0.5)[:, None]
    assert half.op_seconds.tolist() == (own.op_seconds * factor).tolist()
