"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from envs.costs.costs import Costs
from envs.costs.efficiency_file import Efficiencies, load_efficiencies
from graphs.cluster import Device
from graphs.op_graph import Floats, OpGraph
from graphs.precision import SINGLE
from graphs.problem import Problem

_log = logging.getLogger("placelab")

CONFIGURATIONS = ("efficiency=typical",)

PEAK = "peak"


@dataclass(frozen=True, eq=False)
class Roofline:
    """The roofline model (Williams et al. 2009), at the devices' full speeds or at the shares that kinds of ops reach.

    Seconds = max(flops / (flops_per_second x share), bytes_accessed / (bytes_per_second x share)), where the FLOP/s are
    the peak in the precision in which the op multiplies (`OpGraph.precisions`). Where the device has no such peak,
    it is the peak in single precision, and a warning says so. The time to launch an op is not included: the simulator
    adds `Device.launch_seconds` after each op. Recorded times (`OpGraph.measured_seconds`) are not read.
    """

    follows_costs: ClassVar[bool] = True

    efficiencies: Efficiencies | None = None  # without any, all ops run at peak

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds."""
        graph, devices = problem.graph, problem.cluster.devices
        arithmetic, traffic = (1.0, 1.0) if self.efficiencies is None else self.efficiencies.of(graph.kinds)
        flops_per_second = _peaks(graph, devices)
        bytes_per_second = np.array([device.bytes_per_second for device in devices])
        with np.errstate(over="ignore"):  # a share near zero makes it infinite, which callers refuse
            computing = (graph.flops / arithmetic)[:, None] / flops_per_second
            moving = (graph.bytes_accessed / traffic)[:, None] / bytes_per_second
        return Costs(np.maximum(computing, moving))


def _peaks(graph: OpGraph, devices: Sequence[Device]) -> Floats:
    """(ops or 1, devices) FLOP/s of the products of each op."""
    distinct, which = np.unique(graph.precisions or [SINGLE], return_inverse=True)
    for precision in distinct.tolist():
        lacking = [each.name for each in devices if precision != SINGLE and precision not in each.flops_by_precision]
        if lacking:
            _warn_once(", ".join(lacking[:3]) + f" and {len(lacking) - 3} more" * (len(lacking) > 3), precision)
    return np.array([[device.peak(precision) for device in devices] for precision in distinct.tolist()])[which]


@cache
def _warn_once(devices: str, precision: str) -> None:
    """Once, though searches ask for what ops cost again and again."""
    _log.warning(
        "the FLOP/s of %s in %s are not known: products in %s are timed there at the peak in single precision; give "
        "them as flops_by_precision of the device in a cluster file", devices, precision, precision,
    )  # fmt: skip


def build(*, efficiency: str = PEAK) -> Roofline:
    """Share of the peak speeds that ops reach: "peak", "typical", or a file (`envs/costs/efficiency_file.py`)."""
    return Roofline(None if efficiency == PEAK else load_efficiencies(efficiency))
