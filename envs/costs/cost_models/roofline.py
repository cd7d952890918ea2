"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from envs.costs.communication_times import communication_seconds
from envs.costs.costs import Costs, timing
from envs.costs.efficiency_file import Efficiencies, Shares, load_efficiencies
from envs.costs.kernel_kinds import kernel_kinds
from envs.costs.nearest_gpu import nearest_gpu, stand_ins
from graphs.cluster import Device
from graphs.formats.collectives import is_sent
from graphs.foundation.errors import listed
from graphs.op_graph import Floats, OpGraph
from graphs.op_graph.precision import SINGLE
from graphs.problem import Problem

_log = logging.getLogger("placelab")

CONFIGURATIONS = ("efficiency=typical", "efficiency=measured")

PEAK = "peak"


@dataclass(frozen=True, eq=False)
class Roofline:
    """The roofline model (Williams et al. 2009), at the devices' full speeds or at the shares that kinds of ops reach.

    Seconds = max(flops / (flops_per_second x share), bytes_accessed / (bytes_per_second x share)), and more for small
    ops where efficiencies say so (`envs/costs/efficiency_file.py`). The FLOP/s are the peak in the precision in which
    an op multiplies (`OpGraph.precisions`). Where the device has no such peak, it is the peak in single precision, and
    a warning says so. The time to launch an op is not included: the simulator adds `Device.launch_seconds` after each
    op. Recorded times (`OpGraph.measured_seconds`) are not read. Messages and collectives of one rank take what their
    bytes take on the cluster's links (`envs.costs.communication_times`).
    """

    follows_costs: ClassVar[bool] = True

    efficiencies: Efficiencies | None = None  # without any, all ops run at peak

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds."""
        graph, devices = problem.graph, problem.cluster.devices
        arithmetic, traffic, half = self._shares(graph, devices)
        flops_per_second = _peaks(graph, devices)
        bytes_per_second = np.array([device.bytes_per_second for device in devices])
        with np.errstate(over="ignore"):  # a share near zero makes it infinite, which callers refuse
            computing = graph.flops[:, None] / arithmetic / flops_per_second
            moving = graph.bytes_accessed[:, None] / traffic / bytes_per_second
            seconds = np.maximum(computing, moving)
            seconds = seconds + np.sqrt(half * seconds) if half.any() else seconds
        sent = is_sent(graph)
        if sent.any():
            seconds[sent] = communication_seconds(problem)[sent, None]
        return Costs(seconds)

    def _shares(self, graph: OpGraph, devices: Sequence[Device]) -> Shares:
        """What ops reach, each (ops or 1, devices or 1)."""
        known = self.efficiencies
        if known is None:
            return Shares(*np.array([1.0, 1.0, 0.0])[:, None, None])
        kinds, measured_as = kernel_kinds(graph), known.measured_as()
        gpus = [nearest_gpu(device, measured_as) for device in devices]
        of_gpu = {gpu: known.of(kinds, gpu) for gpu in dict.fromkeys(gpus)}
        each = [of_gpu[gpu] for gpu in gpus] if len(of_gpu) > 1 else list(of_gpu.values())
        return Shares(*(np.stack(column, axis=1) for column in zip(*each, strict=True)))


def _peaks(graph: OpGraph, devices: Sequence[Device]) -> Floats:
    """(ops or 1, devices) FLOP/s of the products of each op."""
    distinct, which = np.unique(graph.precisions or [SINGLE], return_inverse=True)
    for precision in distinct.tolist():
        lacking = [each.name for each in devices if precision != SINGLE and precision not in each.flops_by_precision]
        if lacking:
            _warn_once(listed(lacking), precision)
    return np.array([[device.peak(precision) for device in devices] for precision in distinct.tolist()])[which]


@cache
def _warn_once(devices: str, precision: str) -> None:
    """Once, though searches ask for what ops cost again and again."""
    _log.warning(
        "the FLOP/s of %s in %s are not known: products in %s are timed there at the peak in single precision; give "
        "them as flops_by_precision of the device in a cluster file", devices, precision, precision,
    )  # fmt: skip


def stand_in_remark(problem: Problem) -> str:
    """Which GPUs that were measured stand for devices that were not, where a roofline timed the ops; else empty."""
    name, _, knobs = timing(problem).partition(":")
    what = knobs.removeprefix("efficiency=")
    if name != "roofline" or what in ("", PEAK):
        return ""
    found = stand_ins(problem.cluster.devices, load_efficiencies(what).measured_as()).items()
    return "; ".join(
        f"times of {listed(names)} by the shares of the peak that were measured on {gpu}" for gpu, names in found
    )


def build(*, efficiency: str = PEAK) -> Roofline:
    """Shares of the peak that ops reach: "peak", "typical", "measured", or a file (`envs/costs/efficiency_file.py`)."""
    return Roofline(None if efficiency == PEAK else load_efficiencies(efficiency))
