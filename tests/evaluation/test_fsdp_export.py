"""The lines for fully_shard wrap the plan's blocks, and what they wrap computes what the model does."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

import placelab
from envs.plans.plan import Plan
from evaluation.exports.degrees import recomputed_ops
from evaluation.exports.formats import export_plan
from graphs.problem import Problem
from graphs.runtime import IDEAL
from placers.parallel import Parallel
from tests.evaluation.row_model import Row
from tests.forked import CONTEXT, LIMIT, begin

PROCESSES, SAMPLES = 2, 4
BLOCKS = [f"layers.{number}" for number in range(5)]


def problem() -> Problem:
    words = torch.zeros(PROCESSES * SAMPLES, 6, dtype=torch.long)
    found = placelab.place((Row(), (words,)), cluster="p100x2", placer="single_device", groups=None).problem
    devices = tuple(replace(each, kind="cpu") for each in found.cluster.devices)
    return replace(found, cluster=replace(found.cluster, devices=devices), runtime=IDEAL)


def lines(plan: Plan, found: Problem) -> str:
    return export_plan(found, plan, None, "fsdp").text


def loss_of(model: nn.Module, words: Tensor) -> Tensor:
    logits: Tensor = model(words)
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


def wrapped_step(rank: int, file: str, texts: list[str]) -> None:
    """What each of the processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    plain = Row()
    words = torch.randint(20, (PROCESSES * SAMPLES, 6), generator=torch.Generator().manual_seed(1))
    loss_of(plain, words).backward()  # type: ignore[no-untyped-call]
    for text in texts:
        model = copy.deepcopy(plain)
        model.zero_grad()
        exec(compile(text, "fsdp", "exec"), {"model": model})
        assert [name for name, each in model.named_modules() if isinstance(each, FSDPModule)] == ["", *BLOCKS]
        assert sum(isinstance(each, CheckpointWrapper) for each in model.modules()) == 5 * ("checkpoint" in text)
        loss = loss_of(model, words[rank * SAMPLES : (rank + 1) * SAMPLES])
        loss.backward()  # type: ignore[no-untyped-call]
        expected = {name: each.grad for name, each in plain.named_parameters()}
        for name, each in model.named_parameters():
            assert isinstance(each.grad, DTensor)
            torch.testing.assert_close(
                each.grad.full_tensor(), expected.pop(name.replace("_checkpoint_wrapped_module.", ""))
            )
        assert not expected
        distributed.all_reduce(loss.data)
        torch.testing.assert_close(loss.data / PROCESSES, loss_of(plain, words).detach())
    distributed.destroy_process_group()


def test_wrapped_blocks_compute_what_the_model_does(tmp_path: Path) -> None:
    found = problem()
    asked = [Parallel(zero=3), Parallel(zero=3, recompute=True), Parallel(zero=2)]
    texts = [lines(each.place(found).plan, found) for each in asked]
    begin()
    arguments = [(rank, str(tmp_path / "store"), texts) for rank in range(PROCESSES)]
    processes = [CONTEXT.Process(target=wrapped_step, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT)
    assert [process.exitcode for process in processes] == [0] * PROCESSES


def test_a_group_of_replicas_is_an_axis_of_the_mesh() -> None:
    words = torch.zeros(8, 6, dtype=torch.long)
    found = placelab.place((Row(), (words,)), cluster="p100x4", placer="single_device", groups=None).problem
    text = lines(Parallel(zero=3, shard_group=2).place(found).plan, found)
    assert 'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))' in text


def test_blocks_of_which_parts_are_recomputed_are_checkpointed() -> None:
    found = problem()
    graph, plan = found.graph, Parallel(zero=3, recompute=True, micro_batches=2).place(found).plan
    begins = [graph.names.index(name) for name in ("layers.1.up/addmm_2", "layers.2.up/addmm_4", "layers.3.up/addmm_6")]
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    stage = np.searchsorted([*begins, begins[-1] + 1], forward, side="right")
    some = replace(plan, schedule=replace(plan.schedule, stages=tuple(stage.tolist()), recompute=(1, 3)))
    some.check(found)  # of layers.3 one product of two
    written = export_plan(found, some, None, "fsdp")
    assert written.notes == ("fsdp recomputes whole layers, and the plan parts of 1 of them.",)
    assert 'for name in ["layers.1", "layers.3"]:' in written.text
    assert f"for name in {json.dumps(BLOCKS)}:" in written.text
    again = {graph.names[op].partition("/")[0] for op in np.flatnonzero(recomputed_ops(found, written.plan)[:20])}
    assert again == {"layers.1", "layers.1.up", "layers.1.down", "layers.3", "layers.3.up", "layers.3.down"}
