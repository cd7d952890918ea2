"""Nearest GPU: which GPU that was measured stands for a device."""

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np

from graphs.cluster import Device
from graphs.devices.catalogue import catalogue
from graphs.op_graph import Floats


def nearest_gpu(device: Device, measured_as: Mapping[str, str]) -> str:
    """The GPU that was measured for the one of the catalogue whose FLOP/s and bytes/s are nearest to a device's.

    `measured_as` has it by names of the catalogue. Empty for a device that is no GPU, and if there are none. Nearest is
    the least sum of the logarithms of ratios, in single and in half precision and in bytes/s: our choice.
    """
    if device.kind != "gpu" or not measured_as:
        return ""
    own = _figures(device)
    return measured_as[min(measured_as, key=lambda name: (np.abs(_of_catalogue(name) - own).sum(), name))]


def is_measured(device: Device, gpu: str) -> bool:
    """Whether a device is that GPU of the catalogue, by its figures."""
    return bool((_of_catalogue(gpu) == _figures(device)).all())


def stand_ins(devices: Iterable[Device], measured_as: Mapping[str, str]) -> dict[str, list[str]]:
    """By the GPUs that were measured, the names of the devices that are others."""
    found: dict[str, list[str]] = {}
    for device in devices:
        gpu = nearest_gpu(device, measured_as)
        if gpu and not is_measured(device, gpu):
            found.setdefault(gpu, []).append(device.name)
    return found


@cache
def _of_catalogue(name: str) -> Floats:
    return _figures(catalogue().device(name))


def _figures(device: Device) -> Floats:
    return np.log([device.flops_per_second, device.peak("fp16"), device.bytes_per_second])
