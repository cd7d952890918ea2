"""Random op graphs: a shape of some kind, with what its ops compute, send and keep."""

from dataclasses import dataclass

import numpy as np

from graphs.capture.training_step import training_step
from graphs.cluster import Cluster
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.op_graph.optimizers import UPDATE_TRAFFIC
from graphs.op_groups.grouping import tie_ops
from training.problems.random.kinds import FEWEST_NODES, KINDS
from training.problems.random.random_cluster import log_uniform, seconds_per_byte, typical_speeds
from training.problems.random.shape import NO_WEIGHT, Shape

MOST_OPS = 1536  # of a forward pass in groups; of a whole step that is some 5,000 ops to simulate
OPS_PER_UNIT = 2.0, 8.0  # in op groups, on average
ROLES = 10.0  # by which a role's ops are at most heavier or lighter than the middle, where roles differ
HEAVY_TAIL = 0.3, 2.0  # standard deviations of the logarithm of what ops weigh, where each differs
UPDATED = 0.01, 1.0  # seconds that the update of a weight takes over those of its op

# By which names ops pass: with FLOPs and a weight, with FLOPs alone, and without any. They say what a backward pass
# keeps (`graphs.capture.training_step`), and whose times are measured alike.
PRODUCTS = ("aten.addmm", "aten.convolution", "aten.linear")
COMPUTING = ("aten.bmm", "aten.cumsum", "aten.mul")
MOVING = ("aten.add", "aten.relu", "aten.tanh", "aten.cat", "aten.softmax", "aten.native_dropout")


@dataclass(frozen=True)
class GraphOrder:
    """What is asked of a random graph."""

    kind: str  # of `training.problems.random.kinds`
    units: int  # at most; at least half as many, but for one
    op_seconds: float  # mean of the forward ops, on a typical device of the cluster
    transfers: float  # mean seconds to send an output over mean seconds of an op, of the forward pass
    training: bool  # a whole step
    grouped: bool  # several ops in each unit
    equal_times: bool  # all forward ops take the same time


def random_graph(rng: np.random.Generator, asked: GraphOrder, cluster: Cluster) -> OpGraph:
    """An op graph whose times and transfers are as asked on a cluster."""
    nodes = max(asked.units - asked.training, FEWEST_NODES)  # the loss is an op of its own
    if asked.grouped:
        nodes = max(min(int(nodes * log_uniform(rng, *OPS_PER_UNIT)), MOST_OPS), nodes)
    shape = KINDS[asked.kind](rng, nodes)
    graph = _with_costs(rng, shape, asked, cluster)
    if asked.training:
        graph = training_step(graph)
    return tie_ops(graph, asked.units) if asked.grouped else graph


def _with_costs(rng: np.random.Generator, shape: Shape, asked: GraphOrder, cluster: Cluster) -> OpGraph:
    """The forward pass: equal or unequal times, by FLOPs or by bytes; outputs; and the weights that ops read."""
    flops_per_second, bytes_per_second = typical_speeds(cluster)
    work = np.ones(len(shape)) if asked.equal_times else _amounts(rng, shape.roles)
    seconds = asked.op_seconds * work / work.mean()
    weight_of = _weights(rng, shape, needed=asked.training)
    has_weight = weight_of != NO_WEIGHT
    kinds, computes = _kinds(rng, shape.roles, has_weight)
    outputs = _amounts(rng, shape.roles, like=work)
    outputs *= asked.transfers * asked.op_seconds / seconds_per_byte(cluster) / outputs.mean()
    moved = np.where(computes, rng.uniform(0.0, 0.9), 1.0) * seconds * bytes_per_second
    readers = np.flatnonzero(has_weight)
    weights = np.zeros(int(weight_of.max(initial=NO_WEIGHT)) + 1)
    sizes = _amounts(rng, shape.roles, like=work)
    np.maximum.at(weights, weight_of[readers], (sizes / sizes.mean())[readers])
    weights *= log_uniform(rng, *UPDATED) * asked.op_seconds * bytes_per_second / UPDATE_TRAFFIC
    return OpGraph(
        f"random-{asked.kind}",
        tuple(f"op{i}" for i in range(len(shape))),
        kinds,
        flops=np.where(computes, seconds * flops_per_second, 0.0),
        bytes_accessed=moved,
        output_bytes=outputs,
        edges=shape.edges,
        weights=weights,
        weight_uses=np.stack([readers, weight_of[readers]], axis=1),
    )


def _amounts(rng: np.random.Generator, roles: Ints, like: Floats | None = None) -> Floats:
    """(nodes,) positive numbers: by role, heavy-tailed, or both; or all equal, or in proportion, if `like` is given."""
    ways = ["roles", "tail", "both"] if like is None else ["roles", "tail", "both", "equal", "like"]
    way = rng.choice(ways)
    if way == "like":
        assert like is not None
        return like.copy()
    amounts = np.ones(len(roles))
    if way in ("roles", "both"):
        amounts *= np.exp(rng.uniform(-1, 1, int(roles.max()) + 1) * np.log(ROLES))[roles]
    if way in ("tail", "both"):
        amounts *= rng.lognormal(0.0, rng.uniform(*HEAVY_TAIL), len(roles))
    return amounts


def _weights(rng: np.random.Generator, shape: Shape, *, needed: bool) -> Ints:
    """(nodes,) the weight that each reads, or NO_WEIGHT: those of the shape, or of the nodes of some roles alone."""
    kept = (rng.random(int(shape.roles.max()) + 1) < rng.uniform(0.3, 1.0))[shape.roles]
    weights = np.where(kept, shape.weights, NO_WEIGHT)
    if needed and (weights == NO_WEIGHT).all():
        weights = shape.weights
    if needed and (weights == NO_WEIGHT).all():
        weights = np.arange(len(shape))
    found, number = np.unique(weights, return_inverse=True)
    return number - int(found[0] == NO_WEIGHT)


def _kinds(rng: np.random.Generator, roles: Ints, has_weight: Bools) -> tuple[tuple[str, ...], Bools]:
    """(nodes,) the kind of each op, the same for all of a role, and whether it computes more than it moves."""
    names, computes = np.empty(len(roles), object), has_weight.copy()
    for role in range(int(roles.max()) + 1):
        of_role, is_heavy = roles == role, rng.random() < 0.5
        names[of_role] = rng.choice(COMPUTING if is_heavy else MOVING)
        names[of_role & has_weight] = rng.choice(PRODUCTS)
        computes |= of_role & is_heavy
    return tuple(names.tolist()), computes
