"""Batch: what a step costs with another number of samples, or with a part of them.

Costs of an op are affine in the batch (`graphs.op_graph.batch_law.BatchLaw`); times that were measured are taken to be
in proportion to it, as papers take them, but for those of updates.
"""

from dataclasses import replace

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import RESIDENT, SPARSE, Bools, Floats, OpGraph, Phase
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.weight_memory import weight_gradients

_ROUNDING = 1e-9  # of a cost: what is nearer to nothing, or to all, is that


def law_of(graph: OpGraph) -> BatchLaw:
    """The graph's law or, where it does not know its fixed parts, those that a rule gives.

    The rule: an op reads its weights whole, or those of its forward op; a gradient of weights is as large as they are;
    updates do not grow. What a look-up finds in a table grows. What the rule cannot see are ops on positions or masks:
    of captured models it is within about one per cent of the seconds of a step, at a sixteenth of the batch.
    """
    law = graph.batch_law or BatchLaw()
    return law if law.knows_ops else BatchLaw(law.samples, **_by_rule(graph))


def samples_of(graph: OpGraph) -> int:
    """How many samples a step of the graph has. Raises InputError, with the remedy, if it does not say so."""
    if graph.samples < 1:
        raise InputError(
            f"graph {graph.name!r} does not say how many samples its step has; name its file as FILE:batch=N, or let "
            "the function that makes the model take `batch`, with a default"
        )
    return graph.samples


def check_samples(samples: int) -> None:
    """Raise InputError for a number of samples that no step can have."""
    if not isinstance(samples, int) or samples < 1:
        raise InputError(f"the batch is {samples!r} samples; expected a whole number, at least 1")


def scaled(graph: OpGraph, part: float, of: float = 1.0) -> OpGraph:
    """The same graph, with what it costs for `part` samples in place of `of`.

    The samples are no longer known, nor are descriptions of ops; the shapes of signatures stay those of the batch that
    was captured. A message of an edge, which has no law, is in proportion to the batch where its producer's output
    grows at all, and a transfer of an output is the same share of it as before. So is what an op occupies besides its
    output; next to an output that does not grow, as a loss or a cast weight but no gradient, it is of the samples.
    """
    law, grown = law_of(graph), grows(graph)
    amounts = {}
    for key in COSTS:
        fixed, whole = getattr(law, key), getattr(graph, key)
        amounts[key] = fixed + (whole - fixed) / of * part  # divided first: exact, if the costs of a sample are whole
    linear = np.where(grown, part / of, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        outputs = np.where(graph.output_bytes > 0, amounts["output_bytes"] / graph.output_bytes, linear)
    is_fixed = (law.output_bytes >= graph.output_bytes) & (graph.phase < Phase.UPDATE) & ~weight_gradients(graph)
    resident = np.where(is_fixed, part / of, outputs)
    timed = np.where(graph.phase >= Phase.UPDATE, 1.0, part / of)
    return replace(
        graph,
        **amounts,
        transfer_bytes=graph.transfer_bytes * outputs if len(graph.transfer_bytes) else graph.transfer_bytes,
        **{key: getattr(graph, key) * resident for key in RESIDENT if len(getattr(graph, key))},
        edge_bytes=graph.edge_bytes * linear[graph.edges[:, 0]] if len(graph.edge_bytes) else graph.edge_bytes,
        measured_seconds=graph.measured_seconds * timed,
        measured_on={device: seconds * timed for device, seconds in graph.measured_on.items()},
        batch_law=replace(law, samples=0),
        held=None if graph.held is None else graph.held.scaled(part / of),
        described=(),
        signatures=graph.signatures and replace(graph.signatures, of_other_batch=True),
    )


def grows(graph: OpGraph) -> Bools:
    """(ops,) whether the output of each op is of the samples, so that a part of the batch makes a part of it.

    What is not is a weight, a gradient of weights, or computed from positions or masks alone: nothing that such an op
    costs grows, nor does anything that it reads, and it makes the same for each micro-batch and replica. A sum over the
    batch is of the samples, as small as it is. An op without costs counts as growing.
    """
    law, costs, fixed = law_of(graph), np.zeros(len(graph), np.bool_), np.ones(len(graph), np.bool_)
    for key in COSTS:
        costs |= getattr(graph, key) > 0
        fixed &= getattr(law, key) >= getattr(graph, key)
    may_grow = (graph.phase < Phase.UPDATE) & ~weight_gradients(graph)
    growing = may_grow & ~(fixed & costs)
    producer, consumer = graph.edges[~graph.control].T
    while len(more := consumer[growing[producer] & ~growing[consumer] & may_grow[consumer]]):
        growing[more] = True
    return growing


def law_between(graph: OpGraph, samples: int, other: OpGraph, other_samples: int) -> BatchLaw | None:
    """The law of a graph, from the graph of the same model with another batch.

    None if the two have other ops, edges or weights, or if costs do not grow as a line does: some would be below
    nothing without any samples, or be less with more of them.
    """
    alike = (
        graph.names == other.names
        and graph.kinds == other.kinds
        and all(
            np.array_equal(getattr(graph, key), getattr(other, key))
            for key in ("edges", "control", "weights", "weight_uses", "phase", "mirror", "group")
        )
    )
    if not alike:
        return None
    fixed: dict[str, Floats] = {}
    for key in COSTS:
        here, there = getattr(graph, key), getattr(other, key)
        amount = here - (here - there) / (samples - other_samples) * samples
        amount = np.where(np.abs(amount) <= _ROUNDING * here, 0.0, amount)
        fixed[key] = np.where(np.abs(amount - here) <= _ROUNDING * here, here, amount)
        if not ((fixed[key] >= 0) & (fixed[key] <= here)).all():
            return None
    return BatchLaw(samples, **fixed)


def _by_rule(graph: OpGraph) -> dict[str, Floats]:
    """(ops,) the fixed parts by what ops are."""
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    own, read = graph.weight_bytes[forward], (graph.bytes_accessed - graph.output_bytes)[forward]
    is_looked_up = own > read  # fewer bytes than the weights have: rows of a table
    is_sparse = np.array([kind.endswith(SPARSE) for kind in graph.kinds])[forward] & (graph.output_bytes < own)
    of_weights = weight_gradients(graph) & ~is_sparse
    updates = graph.phase >= Phase.UPDATE
    read_whole = np.where(is_looked_up & ~of_weights | is_sparse, 0.0, np.minimum(own, graph.bytes_accessed))
    return {
        "flops": np.where(updates, graph.flops, 0.0),
        "bytes_accessed": np.where(updates, graph.bytes_accessed, read_whole),
        "output_bytes": np.where(updates | of_weights, graph.output_bytes, 0.0),
    }
