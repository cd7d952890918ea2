"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from envs.costs.costs import Costs
from envs.costs.efficiency_file import Efficiencies, load_efficiencies
from graphs.problem import Problem

CONFIGURATIONS = ("efficiency=typical",)

PEAK = "peak"


@dataclass(frozen=True, eq=False)
class Roofline:
    """The roofline model (Williams et al. 2009), at the devices' full speeds or at the shares that kinds of ops reach.

    Seconds = max(flops / (flops_per_second x share), bytes_accessed / (bytes_per_second x share)). The time to launch
    an op is not included: the simulator adds `Device.launch_seconds` after each op. Recorded times
    (`OpGraph.measured_seconds`) are not read.
    """

    follows_costs: ClassVar[bool] = True

    efficiencies: Efficiencies | None = None  # without any, all ops run at peak

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds."""
        graph, devices = problem.graph, problem.cluster.devices
        arithmetic, traffic = (1.0, 1.0) if self.efficiencies is None else self.efficiencies.of(graph.kinds)
        flops_per_second = np.array([device.flops_per_second for device in devices])
        bytes_per_second = np.array([device.bytes_per_second for device in devices])
        with np.errstate(over="ignore"):  # a share near zero makes it infinite, which callers refuse
            computing = (graph.flops / arithmetic)[:, None] / flops_per_second
            moving = (graph.bytes_accessed / traffic)[:, None] / bytes_per_second
        return Costs(np.maximum(computing, moving))


def build(*, efficiency: str = PEAK) -> Roofline:
    """Share of the peak speeds that ops reach: "peak", "typical", or a file (`envs/costs/efficiency_file.py`)."""
    return Roofline(None if efficiency == PEAK else load_efficiencies(efficiency))
