"""Profiled layers with OptCNN's costs: how a layer is divided by samples and by its outputs, on eight devices.

A configuration (s, p) cuts the samples into s parts and the layer's outputs, with their parameters, into p; part (i, j)
is on device i p + j. Costs are those of Jia et al. (2018, section 4), in seconds, from what a profile gives:

    t_C   the profiled time / (s p)
    t_S   parameters / p, summed up over s parts: 2 (s - 1) / s times through a device's link
    t_X   what the devices lack: a part of the next layer needs its samples, and all outputs of the layer before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from graphs.formats.msr import load_workload
from graphs.formats.pipedream import load_layer_profile
from graphs.op_graph import Floats
from placers.splits.pairwise_costs import PairwiseCosts

DATA = Path(__file__).parents[3] / "shared" / "data"
CONFIGURATIONS = ((1, 1), (1, 4), (2, 2), (4, 1), (1, 8), (2, 4), (4, 2), (8, 1))
DEVICES = 8
BANDWIDTH = 10e9  # bytes/s of a device's link


@dataclass(frozen=True)
class Layered:
    """A profile: what its layers cost."""

    seconds: Floats  # (layers,)
    parameter_seconds: Floats  # (layers,) that a link takes for the parameters
    output_seconds: Floats  # (layers,) that a link takes for the outputs
    edges: Sequence[tuple[int, int]]

    def costs(self) -> PairwiseCosts:
        """OptCNN's costs of the configurations of all layers."""
        degrees = np.array(CONFIGURATIONS, np.float64)
        compute = 1 / degrees.prod(axis=1)
        synchronised = 2 * (degrees[:, 0] - 1) / degrees[:, 0] / degrees[:, 1]
        alone = [t * compute + w * synchronised for t, w in zip(self.seconds, self.parameter_seconds, strict=True)]
        lacking = missing()
        return PairwiseCosts.summed(alone, [(u, v, self.output_seconds[u] * lacking) for u, v in self.edges])


def missing() -> Floats:
    """(configurations, configurations) what devices need of a tensor for the second and lack after the first.

    As shares of the tensor, added up, of the links of all devices, which work side by side.
    """
    lacking = np.zeros((len(CONFIGURATIONS),) * 2)
    for row, (samples, outputs) in enumerate(CONFIGURATIONS):
        for column, (needed, parts) in enumerate(CONFIGURATIONS):
            for device in range(needed * parts):
                begin, end = device // parts / needed, (device // parts + 1) / needed
                held = 0.0
                if device < samples * outputs:
                    mine = device // outputs
                    held = max(min(end, (mine + 1) / samples) - max(begin, mine / samples), 0.0) / outputs
                lacking[row, column] += (end - begin - held) / DEVICES
    return lacking


def layered(path: Path) -> Layered:
    """A profile of PipeDream or DAPPLE, or a workload of Tarnawski et al., by the end of its name."""
    if path.suffix == ".txt":
        profile = load_layer_profile(path)
        index = {layer.id: number for number, layer in enumerate(profile.layers)}
        return Layered(
            np.array([layer.forward_seconds + layer.backward_seconds for layer in profile.layers]),
            np.array([layer.parameter_bytes for layer in profile.layers]) / BANDWIDTH,
            np.array([sum(layer.activation_bytes) for layer in profile.layers]) / BANDWIDTH,
            [(index[u], index[v]) for u, v in profile.edges],
        )
    workload = load_workload(path)
    ids = {node.id: number for number, node in enumerate(workload.nodes)}
    return Layered(
        np.array([node.fpgaLatency for node in workload.nodes]) / 1e3,
        np.array([node.size for node in workload.nodes]) / BANDWIDTH,
        workload.send_seconds,
        [(ids[edge.sourceId], ids[edge.destId]) for edge in workload.edges],
    )


def profiles() -> list[Path]:
    """All that are at hand; tests that need them are skipped if there are none."""
    found = [
        *DATA.glob("pipedream/*.txt"),
        *DATA.glob("dapple/*.txt"),
        *DATA.glob("msr/throughput/*.json"),
        *DATA.glob("msr/latency/*.json"),
    ]
    if not (paths := sorted(path for path in found if not path.name.startswith("LICENSE"))):
        pytest.skip("the profiles are not at hand")
    return paths
