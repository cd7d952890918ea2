"""The lines for fully_shard wrap the plan's blocks, and what they wrap computes what the model does."""

import copy
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

import placelab
from envs.plans.plan import Plan
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.exports.degrees import recomputed_ops
from evaluation.exports.exported_plan import ExportedPlan
from evaluation.exports.formats import export_plan
from evaluation.records.text_console import TextConsole
from graphs.problem import Problem
from graphs.runtime import IDEAL
from placers.parallel import Parallel
from placers.single_device import SingleDevice
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
    return export_plan(found, plan, Row(), "fsdp").text


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
        names: dict[str, Any] = {"model": model}
        exec(compile(text, "fsdp", "exec"), names)
        assert [name for name, each in model.named_modules() if isinstance(each, FSDPModule)] == ["", *BLOCKS]
        assert sum(isinstance(each, CheckpointWrapper) for each in model.modules()) == 5 * ("checkpoint" in text)
        mine, loss = words[rank * SAMPLES : (rank + 1) * SAMPLES], torch.zeros(())
        parts = mine.chunk(2 if "micro-batches" in text else 1)
        for number, part in enumerate(parts):
            names.get("begin_micro_batch", bool)(number + 1 == len(parts))
            of_part = loss_of(model, part) / len(parts)
            of_part.backward()  # type: ignore[no-untyped-call]
            loss += of_part.detach()
        expected = {name: each.grad for name, each in plain.named_parameters()}
        for name, each in model.named_parameters():
            assert isinstance(each.grad, DTensor)
            torch.testing.assert_close(
                each.grad.full_tensor(), expected.pop(name.replace("_checkpoint_wrapped_module.", ""))
            )
        assert not expected
        distributed.all_reduce(loss)
        torch.testing.assert_close(loss / PROCESSES, loss_of(plain, words).detach())
    distributed.destroy_process_group()


def test_wrapped_blocks_compute_what_the_model_does(tmp_path: Path) -> None:
    found = problem()
    asked = [
        Parallel(zero=3), Parallel(zero=3, recompute=True, micro_batches=2), Parallel(zero=2, micro_batches=2),
        Parallel(zero=1, micro_batches=2),
    ]  # fmt: skip
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


def test_parts_of_blocks_that_are_modules_are_checkpointed_and_else_whole_blocks() -> None:
    found = problem()
    graph, plan = found.graph, Parallel(zero=3, recompute=True, micro_batches=2).place(found).plan
    begins = [graph.names.index(f"layers.{each}") for each in ("1.up/addmm_2", "2.up/addmm_4", "3.up/addmm_6")]
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))

    def some(ops: int) -> Plan:
        """Of layers.3 so many ops run again, and all of layers.1."""
        stages = np.searchsorted([*begins, begins[-1] + ops], forward, side="right")
        of_them = replace(plan, schedule=replace(plan.schedule, stages=tuple(stages.tolist()), recompute=(1, 3)))
        of_them.check(found)
        return of_them

    one = export_plan(found, some(1), Row(), "fsdp")
    assert (one.plan, one.notes) == (some(1), ())
    assert 'for name in ["layers.1", "layers.3.up"]:' in one.text
    assert f"for name in {json.dumps(BLOCKS)}:" in one.text
    both = export_plan(found, some(2), Row(), "fsdp")
    assert both.notes == ("fsdp recomputes whole layers, and the plan parts of 1 of them.",)
    assert 'for name in ["layers.1", "layers.3"]:' in both.text
    again = {graph.names[op].partition("/")[0] for op in np.flatnonzero(recomputed_ops(found, both.plan)[:20])}
    assert again == {"layers.1", "layers.1.up", "layers.1.down", "layers.3", "layers.3.up", "layers.3.down"}


def test_lines_are_printed_whole_however_narrow_a_terminal_is() -> None:
    found = problem()
    planned = SimulatedPlan.of(found, Parallel(zero=3).place(found).plan)
    text = lines(planned.plan, found)
    console = TextConsole(file=io.StringIO(), width=40, force_terminal=False)
    with console.capture() as capture:
        console.print(ExportedPlan("fsdp", text, planned, planned), crop=False)
    assert capture.get().startswith(text)


def test_one_device_that_is_faster_is_named() -> None:
    found = problem()
    planned = SimulatedPlan.of(found, Parallel(zero=3).place(found).plan)
    alone = SimulatedPlan.of(found, SingleDevice().place(found).plan)
    assert alone.timeline.step_seconds < planned.timeline.step_seconds
    taken = f"gpu:0 alone is faster, {1e3 * alone.timeline.step_seconds:.4g} ms."
    assert ExportedPlan("fsdp", "", planned, planned).cost.endswith(taken)
    assert "faster" not in ExportedPlan("fsdp", "", alone, alone).cost


def test_a_model_without_blocks_is_wrapped_whole() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    found = placelab.place((model, (torch.zeros(8, 8),)), cluster="p100x2", placer="fsdp", groups=None)
    text = export_plan(found.problem, found.plan, model, "fsdp").text
    assert "in []" not in text
    assert text.splitlines()[-1].startswith("fully_shard(model, mesh=mesh")
