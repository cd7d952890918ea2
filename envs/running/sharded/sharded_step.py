"""A step of a plan of ZeRO with one stage: the user's module under PyTorch's `fully_shard` (FSDP2).

    zero                           1                  2                      3
    weights are gathered           once in a step     once in a step         for each pass, block by block
    gradients are scattered        after the last     after each             after each micro-batch
    by reshard_after_forward       False              False                  True

Of each a device holds its part of optimizer states, too; PyTorch's parts are of the first dimension of each weight.
Weights are gathered when they are first read in a step, in place of after their update. With a `shard_group` the mesh
has two dimensions, and parts of gradients are added up over the groups with the last micro-batch. With `offload` parts
of weights and gradients are on the CPU, too, and each process updates its own there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from envs.expansion.expanded import Expansion
from envs.expansion.layout import Layout
from envs.plans.plan import Plan
from envs.running.captured_program import CapturedProgram
from envs.running.pipelined.pass_records import PassRecords
from envs.running.pipelined.replicated_step import ReplicatedStep
from envs.running.plan_rules import check_sharded
from envs.running.sharded.sharded_blocks import checkpointed_modules, sharded_blocks
from graphs.foundation.errors import InputError
from graphs.problem import Problem


def check_module(program: CapturedProgram, problem: Problem, plan: Plan) -> None:
    """Raise InputError for a model whose weights cannot be divided, and for ops again that are no module's."""
    for name, weight in program.weights.items():
        if not weight.dim():
            raise InputError(
                f"{program.example.name}: the weight {name!r} is a single number, which cannot be held in parts (ZeRO);"
                " give it a dimension, or take data_parallel"
            )
    checkpointed_modules(problem, plan, program.example.module)


class ShardedStep(ReplicatedStep):
    """What one process runs of it: a replica, and its parts of the weights."""

    def _joined(self, problem: Problem, plan: Plan, device: torch.device) -> tuple[int, ...]:
        devices = check_sharded(problem, plan)
        group = plan.schedule.shard_group or len(devices)
        ranks = torch.tensor(devices).reshape(-1, group).sort().values  # as PyTorch orders those of a group
        names: tuple[str, ...] = "replicate", "shard"
        if len(ranks) == 1:
            ranks, names = ranks[0], names[1:]
        self._mesh = DeviceMesh(device.type, ranks, mesh_dim_names=names)
        self._problem, self._zero = problem, plan.schedule.zero
        return devices

    def _awaited(self, module: nn.Module) -> str:  # noqa: ARG002 - as of replicas
        return "weights of others"

    def _records_of(self, expansion: Expansion, rank: int) -> PassRecords:
        layout, placement = Layout(expansion.given, expansion.plan), expansion.placement.copy()
        placement[: len(layout.origin)] = layout.replica_device  # whose processes run offloaded updates
        one = replace(expansion, stage=np.minimum(expansion.stage, 0), placement=placement)  # all are run as one
        return PassRecords(one, rank)

    def _wrapped(self, module: nn.Module, plan: Plan) -> nn.Module:
        """The module, whose blocks and rest hold parts of their weights, and gather them to run."""
        blocks = sharded_blocks(self._problem.graph, module)
        for each in checkpointed_modules(self._problem, plan, module):
            each.forward = partial(checkpoint, each.forward, use_reentrant=False)
        where = OffloadPolicy()
        if plan.schedule.offload:
            where = CPUOffloadPolicy(pin_memory=self._device.type != "cpu")
        for block in blocks:
            fully_shard(block, mesh=self._mesh, reshard_after_forward=self._zero == 3, offload_policy=where)
        fully_shard(module, mesh=self._mesh, reshard_after_forward=False, offload_policy=where)
        return module

    @contextmanager
    def _adding_up(self, *, is_last: bool) -> Iterator[None]:
        assert isinstance(self._module, FSDPModule)
        self._module.set_requires_gradient_sync(is_last or self._zero > 1)
        self._module.set_requires_all_reduce(is_last)
        self._module.set_reshard_after_backward(is_last or self._zero == 3)
        self._module.set_is_last_backward(is_last)
        yield

    def weights(self) -> Mapping[str, Tensor]:
        """All that have a gradient, by name, whole; to be called by all processes, as what follows."""
        return self._whole({name: weight for name, weight in self._own().named_parameters() if weight.grad is not None})

    def gradients(self) -> Mapping[str, Tensor]:
        """Their gradients in the latest step, added up."""
        weights = self._own().named_parameters()
        return self._whole({name: weight.grad for name, weight in weights if weight.grad is not None})

    def _own(self) -> nn.Module:
        return self._module if self._replica >= 0 else nn.Module()

    def _whole(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            here = {name: each.to(self._device) for name, each in tensors.items()}  # of offloaded parts
            return {name: each.full_tensor() for name, each in here.items() if isinstance(each, DTensor)}
