"""What is written: each format rounds a plan to modules, or to layers in a row, and says it in its words."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import nn

from envs.plan import Plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Written:
    """A plan in the words of another program, and as placelab simulates it."""

    text: str
    problem: Problem  # without op groups
    plan: Plan


def device_map(keys: ModuleKeys) -> Written:
    """For accelerate and transformers: {"model.layers.0": 0, ...}, of each module the number of its GPU.

    Raises InputError if CPUs are used beside other devices: what such a map puts on "cpu" runs on a GPU, from weights
    that are copied there in each step.
    """
    devices = keys.problem.cluster.devices
    used = sorted(set(keys.devices.tolist()))
    if len(used) > 1 and any(devices[each].kind == "cpu" for each in used):
        raise InputError(
            "a device_map runs on a GPU what it puts on the CPU, and this plan runs modules on both; give a plan for "
            "GPUs alone"
        )
    gpus = [number for number, device in enumerate(devices) if device.kind != "cpu"]
    number: dict[int, int | str] = {each: gpus.index(each) if each in gpus else "cpu" for each in used}
    said = {key: number[device] for key, device in zip(keys.keys, keys.devices.tolist(), strict=True)}
    return Written(json.dumps(said, indent=1), keys.problem, keys.placed(keys.devices))


@dataclass(frozen=True, eq=False)
class Row:
    """A model as layers in a row, cut into as many pieces as the plan uses devices."""

    keys: ModuleKeys
    rank: Ints  # (keys,) the piece that each module is in
    is_layer: tuple[bool, ...]  # (keys,)
    devices: tuple[int, ...]  # of each piece

    @classmethod
    def of(cls, keys: ModuleKeys) -> Row:
        """As many layers in each piece as are on its device; what is before the layers is in the first, the rest last.

        The layers are the parts of the module that has most numbered ones. Raises InputError if none has two, and if
        other modules are between them.
        """
        numbered = defaultdict[str, list[int]](list)
        for index, key in enumerate(keys.keys):
            parent, _, last = key.rpartition(".")
            if last.isdecimal():
                numbered[parent].append(index)
        layers = max(numbered.values(), key=len, default=[])
        if len(layers) < 2 or layers != list(range(layers[0], layers[0] + len(layers))):
            raise InputError(
                f"{keys.problem.graph.name!r} is no row of numbered layers, of which this export says how many are on "
                "each device; use --to device_map"
            )
        where = keys.devices[layers]
        used = sorted(set(where.tolist()), key=lambda device: float(np.flatnonzero(where == device).mean()))
        rank = np.zeros(len(keys.keys), np.int64)
        rank[layers] = np.repeat(np.arange(len(used)), [int((where == device).sum()) for device in used])
        first = [int(np.flatnonzero(keys.of_op == index)[:1].sum()) for index in range(len(rank))]
        is_after = np.array(first) > max(first[layer] for layer in layers)
        is_after[layers] = False
        rank[is_after] = len(used) - 1
        return cls(keys, rank, tuple(index in layers for index in range(len(rank))), tuple(used))

    @property
    def counts(self) -> list[int]:
        """Layers of each piece."""
        of_layers = self.rank[np.array(self.is_layer)]
        return [int((of_layers == piece).sum()) for piece in range(len(self.devices))]

    def written(self, text: str) -> Written:
        """The text with the plan that it says."""
        plan = self.keys.placed(self.rank)
        devices = np.array(self.devices)[plan.placement]
        return Written(text, self.keys.problem, Plan.of(devices, order=self.keys.plan.order))


def vllm(keys: ModuleKeys) -> Written:
    """For vLLM's environment: how many layers each pipeline rank has."""
    row = Row.of(keys)
    return row.written("VLLM_PP_LAYER_PARTITION=" + ",".join(map(str, row.counts)))


def megatron(keys: ModuleKeys) -> Written:
    """For Megatron's --pipeline-model-parallel-layout: E is the embedding, t a layer, L the loss."""
    row = Row.of(keys)
    return row.written("E" + "|".join("t" * count for count in row.counts) + "L")


def torchtitan(keys: ModuleKeys) -> Written:
    """For torchtitan's module_fqns_per_model_part: the modules of each stage, by name."""
    row = Row.of(keys)
    parts = [
        [key for key, rank in zip(keys.keys, row.rank.tolist(), strict=True) if rank == piece]
        for piece in range(len(row.devices))
    ]
    return row.written(json.dumps(parts))


FORMATS: dict[str, Callable[[ModuleKeys], Written]] = {
    "device_map": device_map, "torchtitan": torchtitan, "vllm": vllm, "megatron": megatron,
}  # fmt: skip


def export_plan(problem: Problem, plan: Plan, model: nn.Module, to: str) -> Written:
    """A plan in a format. Raises InputError for one that is no op placement, and for what the format cannot say."""
    return FORMATS[to](ModuleKeys.of(problem, plan, model))
