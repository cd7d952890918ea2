"""For accelerate and transformers: {"model.layers.0": 0, ...}, of each module the number of its GPU."""

import json
from dataclasses import replace

from envs.plans.schedule import WHOLE_BATCH
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError


def write(keys: ModuleKeys) -> Written:
    """The map; of a pipeline, each stage's device, which runs the whole batch at once and recomputes nothing.

    Raises InputError if CPUs are used next to other devices: what such a map puts on "cpu" runs on a GPU, from weights
    that are copied there in each step.
    """
    devices = keys.problem.cluster.devices
    used = sorted(set(keys.devices.tolist()))
    if len(used) > 1 and any(devices[each].kind == "cpu" for each in used):
        raise InputError(
            "a device_map runs on a GPU what it puts on the CPU, and this plan runs modules on both; give a plan for "
            "GPUs alone"
        )
    number: dict[int, int | str] = {each: keys.gpu_numbers.get(each, "cpu") for each in used}
    said = {key: number[device] for key, device in zip(keys.keys, keys.devices.tolist(), strict=True)}
    written = keys.written(json.dumps(said, indent=1), keys.places, notes=_notes(keys))
    return replace(written, plan=replace(written.plan, schedule=WHOLE_BATCH))


def _notes(keys: ModuleKeys) -> list[str]:
    """What accelerate does not keep of the schedule."""
    schedule, lost = keys.plan.schedule, list[str]()
    lost += [f"the plan's {schedule.micro_batches} micro-batches"] if schedule.micro_batches > 1 else []
    lost += ["activations that are computed again"] if schedule.recompute else []
    if not lost:
        return []
    return [f"accelerate runs one batch at a time, as a whole: it is simulated without {' and '.join(lost)}."]
