"""Formats of exports, one in each file: its `write` says a plan in the words of another program.

Most round it to modules, or to layers in a row, before. The others take a plan as it is, and need no model.
"""

from collections.abc import Callable

from torch import nn

from envs.plans.plan import Plan
from evaluation.exports.formats import (
    chakra,
    deepspeed,
    device_map,
    llama_cpp,
    megatron,
    schedule_csv,
    torchtitan,
    vllm,
)  # fmt: skip
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.problem import Problem

OF_MODULES: dict[str, Callable[[ModuleKeys], Written]] = {
    "device_map": device_map.write, "torchtitan": torchtitan.write, "vllm": vllm.write, "megatron": megatron.write,
    "deepspeed": deepspeed.write, "llama_cpp": llama_cpp.write,
}  # fmt: skip
OF_PLANS: dict[str, Callable[[Problem, Plan], Written]] = {
    "schedule_csv": schedule_csv.write, "chakra": chakra.write,
}  # fmt: skip


def export_plan(problem: Problem, plan: Plan, model: nn.Module | None, to: str) -> Written:
    """A plan in a format; one of `OF_PLANS` needs no model. Raises InputError for what the format cannot say."""
    if to in OF_PLANS:
        return OF_PLANS[to](problem, plan)
    assert model is not None, to
    return OF_MODULES[to](ModuleKeys.of(problem, plan, model))
