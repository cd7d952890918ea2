"""KaHIP: one part of the graph of units per device, as METIS has it, by a partitioner that cuts less (Sanders, Schulz).

KaFFPa's strong modes take longer than METIS and find lower cuts ("Think locally, act globally", 2013). Vertex and edge
weights, balances, and what happens if no partition fits are those of the placer `metis`. KaFFPa aims at equal parts
only: every device of a target below the largest gets an anchor, a vertex without edges that weighs the difference.
The anchors are then removed, and the heaviest part goes to the device of the largest target, and so on.
"""

from dataclasses import dataclass

import numpy as np

from graphs.foundation.extras import missing
from graphs.op_graph import Floats, Ints
from graphs.op_groups.units import Units
from placers.solvers.partitioning import Partitioner, edge_weights, vertex_weights

BY_REQUEST = True  # needs a package of its own: no part of a comparison unless it is asked for
MODES = (5, 2, 4, 1)  # strong and eco, as they are for social and other networks: KaFFPa's numbers for them
IMBALANCES = (0.03, 0.1, 0.01)  # by which a part may outweigh its target


@dataclass(frozen=True)
class Kahip(Partitioner):
    """The lowest cut of several KaFFPa runs that fits the memory."""

    seeds: int = 12
    """How many runs: each with a seed of its own; the modes and the allowed imbalances alternate."""
    balance: str = "compute"
    """What parts balance: "compute", "both" if no partition balanced by compute fits, and then "memory"; or from
    "both" or "memory" on."""
    repair: bool = True
    """Whether units are moved off overfull devices if no partition fits."""

    def partition(self, units: Units, weights: Floats, targets: Floats, run: int, seed: int) -> Ints:
        """One run of KaFFPa; raises InputError without KaHIP."""
        try:
            import kahip  # an optional package
        except ImportError as error:
            raise missing("kahip", "placer kahip") from error
        offsets, neighbours, links = units.neighbours
        anchors = targets.max() - targets[targets < targets.max()]
        _, parts = kahip.kaffpa(
            vertex_weights(np.concatenate([weights, anchors])).astype(np.int32),
            np.concatenate([offsets, np.full(len(anchors), offsets[-1])]).astype(np.int32),
            edge_weights(units)[links].astype(np.int32), neighbours.astype(np.int32), len(targets),
            IMBALANCES[run // len(MODES) % len(IMBALANCES)],
            True,  # print nothing
            seed % 2**31, MODES[run % len(MODES)],
        )  # fmt: skip
        part = np.array(parts, np.int64)[: len(units)]
        loads = np.bincount(part, weights=weights, minlength=len(targets))
        device = np.empty(len(targets), np.int64)  # of each part
        device[np.argsort(-loads, kind="stable")] = np.argsort(-targets, kind="stable")
        return device[part]


build = Kahip
