"""Whether a step that is run shard by shard is that of the model as a whole; plans at random."""

import numpy as np
import torch

from envs.expansion.expanded import Expansion
from envs.plans.mesh import Mesh, length
from graphs.descriptions.descriptions import descriptions_of
from graphs.notation.ranges import elements
from graphs.op_graph import OpGraph
from tests.envs.sharded_steps.small_models import Trained
from tests.oracle.sharded.boxed import cut_out, joined
from tests.oracle.sharded.sharded_step import ShardedStep

RATE = 0.25


def check(model: Trained, expansion: Expansion, rounding: float) -> ShardedStep:
    """Loss, gradients, and the weights of every device after the update."""
    step = ShardedStep(expansion, model.given, RATE)
    torch.testing.assert_close(step.result(model.graph.names.index("loss")), model.loss, rtol=rounding, atol=0.0)
    for weight, gradient in enumerate(model.gradients):
        largest = float(gradient.abs().max())
        torch.testing.assert_close(step.gradient(weight), gradient, rtol=0.0, atol=rounding * largest)
        wanted = (model.given[-1 - weight] - RATE * gradient).reshape(step.computing.whole[-1 - weight].shape)
        on = {device: boxes for (which, device), boxes in step.arrivals.stored.items() if which == weight}
        assert on
        for device, boxes in on.items():
            for box, _ in boxes:
                new = joined(step.updated[weight, device], box)
                assert new is not None or not elements(box)
                if new is not None:
                    expected = cut_out(wanted, box).values
                    torch.testing.assert_close(new.values, expected, rtol=rounding, atol=rounding * largest)
    return step


def divided_at_random(
    graph: OpGraph, mesh: Mesh, rng: np.random.Generator, micro_batches: int = 1
) -> tuple[tuple[str, ...], ...]:
    """(ops,) for every axis an index at random that may be divided and is long enough, or none."""
    split = []
    for each in descriptions_of(graph):
        assert each is not None
        operator, chosen = each.operator, list[str]()
        left = {name: size for name, size in operator.sizes.items() if name not in operator.opaque}
        if operator.reducer != "sum":
            kept = [access.variables | access.apart for access in operator.writes]
            left = {name: size for name, size in left.items() if all(name in names for names in kept)}
        if each.batch in left:
            left[each.batch] //= micro_batches
        for axis in mesh:
            least = length(axis) * (1 if isinstance(axis, int) else 2)  # a share may be half of the largest
            may = ["", *(name for name, size in left.items() if size >= least)]
            chosen.append(may[rng.integers(len(may))])
            if chosen[-1]:
                left[chosen[-1]] //= least
        split.append(tuple(chosen))
    return tuple(split)
