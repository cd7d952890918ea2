"""Formats of exports, one in each file: its `write` says a plan in the words of another program.

Some place modules, or layers in a row, and a plan is rounded to them before. Programs for training are told degrees as
well, and a plan is first made what they run of it. The others take a plan as it is, and need no model.
"""

from collections.abc import Callable

from torch import nn

from envs.plans.plan import Plan
from evaluation.exports.formats import (
    chakra,
    deepspeed,
    device_map,
    fsdp,
    llama_cpp,
    megatron,
    schedule_csv,
    torchtitan,
    vllm,
)
from evaluation.exports.module_keys import WITH_ONE_DEVICE_EACH, ModuleKeys, check_one_device_each
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.problem import Problem

OF_MODULES: dict[str, Callable[[ModuleKeys], Written]] = {
    "device_map": device_map.write, "vllm": vllm.write, "llama_cpp": llama_cpp.write,
}  # fmt: skip
OF_TRAINING: dict[str, Callable[[Problem, Plan, nn.Module], Written]] = {
    "torchtitan": torchtitan.write, "megatron": megatron.write, "deepspeed": deepspeed.write,
    "fsdp": fsdp.write,
}  # fmt: skip
OF_PLANS: dict[str, Callable[[Problem, Plan], Written]] = {
    "schedule_csv": schedule_csv.write, "chakra": chakra.write,
}  # fmt: skip

FORMATS = (*OF_MODULES, *OF_TRAINING, *OF_PLANS)


def export_plan(problem: Problem, plan: Plan, model: nn.Module | None, to: str) -> Written:
    """A plan in a format; one of `OF_PLANS` needs no model. Raises InputError for what the format cannot say."""
    if to in OF_PLANS:
        return OF_PLANS[to](problem, plan)
    assert model is not None, to
    if to in OF_TRAINING:
        return OF_TRAINING[to](problem, plan, model)
    check_one_device_each(plan, to)
    if plan.schedule.offload:
        raise InputError(f"{to} takes no plan whose weights are updated by CPUs (offload); {WITH_ONE_DEVICE_EACH}")
    return OF_MODULES[to](ModuleKeys.of(problem, plan, model))
