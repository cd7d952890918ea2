"""The study of splits: what it concludes from measurements, and a whole study, tiny."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.records.journal import plans
from evaluation.studies.splits import __main__ as splits
from evaluation.studies.splits.__main__ import Held, Model, Placed, SplitFindings, Splits
from graphs.foundation.errors import InputError
from tests.evaluation.some_records import record

SMALL = "transformer:layers=1,width=32,heads=2,sequence=8,batch=8,vocabulary=50"


def placed(placer: str, seconds: float, *, fits: bool = True, held: float = 3.0) -> Placed:
    """A plan that takes seconds, and holds bytes of which one is a buffer."""
    of = Held(peak=held, state=held - 2.0, outputs=1.0, buffers=1.0)
    return Placed(record("any", placer, seconds, fits=fits), of, moved=1.0)


def measured(model: str, data: Placed, tensor: Placed, ours: float) -> Model:
    """A model with these experts."""
    alone = Held(peak=8.0, state=6.0, outputs=2.0, buffers=0.0)
    every = (data, tensor, placed("split_search", ours))
    return Model(model, 4, alone, True, {each.record.placer: each for each in every})


def test_the_better_expert_that_fits_counts_and_buffers_do_not() -> None:
    gained = measured("a", placed("data_parallel", 2.0), placed("tensor_parallel", 1.0, fits=False), 1.5)
    equal = measured("b", placed("data_parallel", 2.0), placed("tensor_parallel", 1.0), 1.0)
    behind = measured("c", placed("data_parallel", 2.0), placed("tensor_parallel", 3.0), 2.5)
    findings = SplitFindings([gained, equal, behind])
    assert [findings.best_expert(model).record.placer for model in findings.models] == [
        "data_parallel", "tensor_parallel", "data_parallel",
    ]  # fmt: skip
    assert findings.behind() == [behind]
    assert findings.gain(gained) == 0.25
    assert findings.cell(gained, "tensor_parallel") == "does not fit"
    assert findings.share(gained, gained.plans["data_parallel"]) == (3.0 - 1.0) / 8.0


def test_a_study_of_splits_says_who_is_fastest_and_what_devices_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "MODELS", {"GPT": SMALL})
    monkeypatch.setattr(splits, "LARGE", {})
    with pytest.raises(InputError, match="no model is placed yet"):
        Splits(cluster="p100:devices=2", out=tmp_path, budget=5, write_only=True).write()
    document = Splits(cluster="p100:devices=2", out=tmp_path, budget=5).write()
    written = document.read_text()
    assert "`split_search` is behind data or tensor parallelism on 0 models of 1." in written
    assert written.count("\n| GPT |") == 2
    assert "fit on no single device" not in written
    assert Splits(cluster="p100:devices=2", out=tmp_path, budget=5, write_only=True).write().read_text() == written


def test_a_study_is_of_a_users_loop_unless_another_way_of_running_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "MODELS", {"GPT": SMALL})
    monkeypatch.setattr(splits, "LARGE", {})
    monkeypatch.setattr(splits, "RIVALS", splits.EXPERTS)
    usual = Splits(cluster="p100:devices=2", out=tmp_path, budget=5)
    ideal = replace(usual, runtime="ideal", cost_model="roofline")
    loop, other = usual.write(), ideal.write()
    assert (loop.name, other.name) == ("splits.md", "splits_ideal_roofline.md")
    assert "(`--runtime parallelize --cost-model roofline:efficiency=measured`)" in loop.read_text()
    assert "of the ideal machine" in other.read_text()
    assert "--budget 5 --runtime ideal --cost-model roofline\n" in other.read_text(), "the command makes it again"
    slow, fast = (plans(tmp_path / f"plans{each.suffix}.jsonl")[0].record for each in (usual, ideal))
    assert slow.step_seconds > fast.step_seconds, "of data parallelism; a host issues the ops, and no GPU has its peak"
    with pytest.raises(InputError, match="unknown runtime 'parallelise'"):
        replace(usual, runtime="parallelise").write()
    with pytest.raises(InputError, match="unknown precision 'half'"):
        replace(usual, precision="half").write()
