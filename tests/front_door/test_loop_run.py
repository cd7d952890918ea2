"""`placelab run --in-one-process`: a plan trains in this process, as `parallelize` runs it, on unlike devices, too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import placelab
from envs.placed_models import parallel
from evaluation.measuring.looped_plan import LoopedPlan
from graphs.files.load import load_cluster
from graphs.foundation.errors import DiffersError, InputError
from tests.evaluation.some_records import to_text
from tests.front_door.test_run import MODEL

CLUSTER = "cpu_gpu:gpus=1"
DEVICES = ["cpu", "cpu"]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model, for commands that run in its folder."""
    (tmp_path / "net.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return "net.py:model"


def plan_of(model: str, placer: str) -> str:
    placelab.place(model, cluster=CLUSTER, placer=placer, out=f"{placer}.plan.json")
    return f"{placer}.plan.json"


def run(model: str, placer: str, **options: Any) -> LoopedPlan:
    found = placelab.run(
        model, plan_of(model, placer), cluster=CLUSTER, devices=DEVICES, in_one_process=True, **options
    )
    assert isinstance(found, LoopedPlan)
    return found


def losses_by_hand(seed: int, steps: int) -> list[float]:
    """Of PyTorch's own loop, without a plan."""
    names: dict[str, Any] = {}
    exec(MODEL, names)
    torch.manual_seed(seed)
    module, _ = names["model"]()
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    batches, losses = [*names["data"]()] * 2, []
    for x, y in batches[:steps]:
        optimizer.zero_grad()
        loss = module(x, y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_a_plan_for_a_processor_and_a_gpu_trains_as_the_model_does(given: str) -> None:
    found = run(given, "round_robin", steps=5, seed=3, data="net.py:data")
    record = found.to_json()
    assert record["equal"] is True
    assert [each["relative"] for each in record["differences"].values()] == [0.0] * 4
    assert record["losses"] == pytest.approx(losses_by_hand(3, 5), rel=1e-5)
    assert len(record["step_seconds"]) == 5
    assert record["measured_seconds"] in record["step_seconds"][2:]
    assert [(each["device"], each["on"]) for each in record["devices"]] == [("cpu:0", "cpu"), ("gpu:0", "cpu")]
    assert [each["measured_growth_bytes"] for each in record["devices"]] == [None, None]  # both in one memory
    text = to_text(found.__rich__(), width=140)
    assert "Its first step is that of the unplaced model, but for rounding." in text
    assert "memory beyond weights" in text


def test_steps_may_be_replayed(given: str) -> None:
    found = run(given, "round_robin", runtime="replay:host=none", steps=3, seed=3, data="net.py:data")
    assert found.to_json()["equal"] is True
    assert found.to_json()["losses"] == pytest.approx(losses_by_hand(3, 3), rel=1e-5)
    as_said = placelab.simulate(given, "round_robin.plan.json", cluster=CLUSTER, runtime="replay:host=none")
    assert found.predicted_seconds == as_said.timeline.step_seconds


def test_what_is_predicted_is_a_step_of_such_a_loop(given: str) -> None:
    found = run(given, "single_device", steps=1, check=False)
    as_said = placelab.simulate(given, "single_device.plan.json", cluster=CLUSTER, runtime="parallelize:host=none")
    assert found.predicted_seconds == as_said.timeline.step_seconds
    assert found.to_json()["equal"] is None


def test_a_step_that_is_not_the_model_s_is_said_to_be(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_plan = parallel.run_by_plan

    def wrong(model: nn.Module, **how: Any) -> nn.Module:
        placed = by_plan(model, **how)
        placed.get_parameter("head.weight").register_hook(lambda gradient: 2 * gradient)  # type: ignore[no-untyped-call]
        return placed

    monkeypatch.setattr(parallel, "run_by_plan", wrong)
    found = run(given, "round_robin", steps=1)
    assert found.to_json()["equal"] is False
    with pytest.raises(DiffersError, match=r"its gradients differ by 1 of the largest, in .head\.weight."):
        found.require_equal()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"in_one_process": True}, "name one for each, such as cuda:0,cpu"),
        (
            {"in_one_process": True, "devices": DEVICES, "chart": "both.svg"},
            r"both\.svg: .* not measured in one process",
        ),
        ({"in_one_process": True, "devices": ["cpu"]}, "1 devices are given, and the plan has 'cpu:0', 'gpu:0'"),
        ({"devices": ["cpu", "meta"]}, "processes run all on CPUs or all on GPUs, and `in_one_process=True` runs"),
    ],
)
def test_what_makes_no_sense_is_refused(given: str, options: Mapping[str, Any], sentence: str) -> None:
    plan = plan_of(given, "round_robin")
    with pytest.raises(InputError, match=sentence):
        placelab.run(given, plan, cluster=CLUSTER, **options)


def test_a_pipeline_is_no_op_placement(given: str) -> None:
    placelab.place(given, cluster="p100x2", placer="gpipe:micro_batches=2", out="gpipe.plan.json")
    with pytest.raises(InputError, match="op placements only, and this plan runs 2 micro-batches"):
        placelab.run(given, "gpipe.plan.json", cluster="p100x2", devices=DEVICES, in_one_process=True)


def test_the_cluster_of_the_tests_has_a_processor_and_a_gpu() -> None:
    assert load_cluster(CLUSTER).is_cpu.tolist() == [True, False]
