"""For accelerate and transformers: {"model.layers.0": 0, ...}, of each module the number of its GPU."""

import json

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError


def write(keys: ModuleKeys) -> Written:
    """The map; of a pipeline, each stage's device.

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
    return keys.written(json.dumps(said, indent=1), keys.places)
