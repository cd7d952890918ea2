"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import Costs
from envs.costs.efficiency_file import Efficiencies, load_efficiencies
from graphs.cluster import Cluster
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem

CONFIGURATIONS = ("efficiency=typical",)

PEAK = "peak"


@dataclass(frozen=True, eq=False)
class Roofline:
    """The roofline model (Williams et al. 2009), at the devices' full speeds or at the shares that kinds of ops reach.

    Seconds = max(flops / (flops_per_second x share), bytes_accessed / (bytes_per_second x share)). The time to launch
    an op is none of these: the cluster says it (`Device.launch_seconds`), and the simulator adds it after each op.
    Recorded times (`OpGraph.measured_seconds`) are not read.
    """

    efficiencies: Efficiencies | None = None  # without any, all ops run at peak

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds."""
        return Costs(self.seconds(problem.graph, problem.cluster))

    def seconds(self, graph: OpGraph, cluster: Cluster) -> Floats:
        """(ops, devices) seconds of a graph's ops."""
        arithmetic, traffic = (1.0, 1.0) if self.efficiencies is None else self.efficiencies.of(graph.kinds)
        flops_per_second = np.array([device.flops_per_second for device in cluster.devices])
        bytes_per_second = np.array([device.bytes_per_second for device in cluster.devices])
        with np.errstate(over="ignore"):  # by a share next to nothing; who asks refuses what is infinite
            computing = (graph.flops / arithmetic)[:, None] / flops_per_second
            moving = (graph.bytes_accessed / traffic)[:, None] / bytes_per_second
        longer: Floats = np.maximum(computing, moving)
        return longer


def build(*, efficiency: str = PEAK) -> Roofline:
    """Share of the peak speeds that ops reach: "peak", "typical", or a file (`envs/costs/efficiency_file.py`)."""
    return Roofline(None if efficiency == PEAK else load_efficiencies(efficiency))
