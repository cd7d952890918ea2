"""Formats of exports: one in each file, whose `write` rounds a plan to modules, or to layers in a row, and says it."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from envs.plan import Plan
from evaluation.exports.formats import deepspeed, device_map, megatron, torchtitan, vllm
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.problem import Problem

FORMATS: dict[str, Callable[[ModuleKeys], Written]] = {
    "device_map": device_map.write, "torchtitan": torchtitan.write, "vllm": vllm.write, "megatron": megatron.write,
    "deepspeed": deepspeed.write,
}  # fmt: skip


def export_plan(problem: Problem, plan: Plan, model: nn.Module, to: str) -> Written:
    """A plan in a format. Raises InputError for what the format cannot say."""
    return FORMATS[to](ModuleKeys.of(problem, plan, model))
