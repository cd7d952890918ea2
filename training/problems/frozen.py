"""Frozen models: training steps of which only the last layers are trained, as in fine-tuning."""

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.transforms.freezing import freeze

SHARES = (0.25, 0.5, 0.75, 1.0)  # of the ops that read weights, the first ones, which are frozen; but the last op never


def frozen(graph: OpGraph, share: float) -> OpGraph:
    """A training step whose first ops with weights are not trained any more; as it is where that leaves no step."""
    is_forward, position = graph.phase == Phase.FORWARD, graph.topological_position
    readers = np.unique(graph.weight_uses[:, 0])
    readers = readers[is_forward[readers]]
    readers = readers[np.argsort(position[readers])]
    first = min(round(share * len(readers)), len(readers) - 1)
    if first <= 0:
        return graph
    try:
        return freeze(graph, is_forward & (position < position[readers[first]]))
    except (
        InputError
    ):  # of a weight that first and last layers share, or a graph that does not say what belongs together
        return graph
