"""Random problems and plans for them: training steps through stages, with replicas, micro-batches and recomputation,
in every order of passes; and divided ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import get_args

import numpy as np
from hypothesis import strategies as st

from envs.expansion.joined_passes import joined_passes
from envs.pass_orders import PassKind, PassOrder, Ranks
from envs.plans.mesh import Mesh, shards
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, AllReduce, Recomputing, Schedule, Sharing, Update, Zero, pass_order_of
from graphs.foundation.by_name import Extension, built_in
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from graphs.runtime import RUNTIMES
from tests.envs.expansion.divided_graphs import mlp, random_split
from tests.oracle.strategies import SECONDS, clusters, hosts

MESHES: list[tuple[Mesh, ...]] = [  # of the first stage, and of others
    ((2, 2), (2,), ()), ((2, 2), ()), ((3,), ()), ((2,), (2,), ()), (((1, 2), 2), (2,), ()), (((3, 1),), ()),
]  # fmt: skip
LIMITED = "early_backward_a:in_flight=2", "zb_h2:in_flight=2", "v_half:in_flight=3"
ORDERS = [pass_order_of(spec) for spec in (*built_in("envs.pass_orders"), *LIMITED)]
BYTES = st.integers(0, 3).map(
    lambda size: 72.0 * size
)  # a share of them is whole: of 3 micro-batches, on 2 or 3 replicas


@dataclass
class Ops:
    """A graph while it is drawn, an op at a time."""

    stages: int
    phase: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    mirror: list[int] = field(default_factory=list)
    grows: list[bool] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    uses: list[tuple[int, int]] = field(default_factory=list)

    def add(self, kind: str, phase: Phase, reads: list[int], *, of: int = -1, stage: int = -1) -> int:
        """An op that reads others; of a forward op, it is in its stage. It grows if it reads what does."""
        op = len(self.kind)
        self.kind.append(kind)
        self.phase.append(phase)
        self.mirror.append(of)
        self.stage.append(stage if of < 0 else self.stage[of])
        self.grows.append(True)
        self.edges += [(read, op) for read in dict.fromkeys(reads)]
        return op


@st.composite
def step_graphs(draw: st.DrawFn, most_ops: int = 4, most_stages: int = 3) -> tuple[OpGraph, tuple[int, ...]]:
    """A training step, or the forward pass alone, and the stage of each op."""
    count = draw(st.integers(1, most_ops))
    borders = sorted(draw(st.sets(st.integers(1, count - 1), max_size=most_stages - 1))) if count > 1 else []
    ops = Ops(len(borders) + 1)
    for op in range(count):
        reads = draw(st.lists(st.integers(0, op - 1), max_size=2)) if op else []
        ops.add("toy", Phase.FORWARD, reads, stage=sum(op >= border for border in borders))
    ops.grows[0] = draw(st.booleans())  # or it is a mask
    weight = [draw(st.integers(-1, 1)) for _ in range(count)]  # two weights, which ops may share, or none
    ops.uses += [(op, each) for op, each in enumerate(weight) if each >= 0]
    if draw(st.booleans()):
        _add_backward(draw, ops, weight)
    edges, total = np.reshape(np.array(ops.edges, np.int64), (-1, 2)), len(ops.kind)
    block = np.cumsum(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))  # of consecutive ops
    is_outside = draw(
        st.lists(st.integers(0, 3).map(lambda number: number == 0), min_size=count + 1, max_size=count + 1)
    )
    names = [f"op{op}" if op >= count or is_outside[block[op]] else f"blocks.{block[op]}/op{op}" for op in range(total)]
    size = np.array(draw(st.lists(BYTES, min_size=total, max_size=total)))
    flops = np.array(draw(st.lists(SECONDS, min_size=total, max_size=total)))
    message = st.just(np.nan) | BYTES
    sent = draw(st.just([]) | st.lists(BYTES, min_size=total, max_size=total))
    resident = [draw(st.just([]) | st.lists(BYTES, min_size=total, max_size=total)) for _ in range(2)]
    fixed = ~np.array(ops.grows) | (np.array(ops.phase) >= Phase.UPDATE)
    graph = OpGraph(
        "random", tuple(names), tuple(ops.kind), flops, np.zeros(total), size, edges,
        control=np.array([draw(st.integers(0, 6)) == 0 for _ in edges], np.bool_),
        weights=np.array([72.0, 144.0]), weight_uses=np.reshape(np.array(ops.uses, np.int64), (-1, 2)),
        phase=np.array(ops.phase), mirror=np.array(ops.mirror), transfer_bytes=np.array(sent),
        unsent_bytes=np.array(resident[0]),
        working_bytes=np.array(resident[1]),
        edge_bytes=np.array(draw(st.just([]) | st.lists(message, min_size=len(edges), max_size=len(edges)))),
        batch_law=BatchLaw(0, fixed * flops, np.zeros(total), fixed * size),
    )  # fmt: skip
    return graph, tuple(ops.stage)


def _add_backward(draw: st.DrawFn, ops: Ops, weight: list[int]) -> None:
    """The gradients of all ops, apart from those of their weights or not, and updates."""
    forward, apart = list(ops.edges), draw(st.booleans())
    gradient: dict[int, int] = {}
    summed: dict[int, int] = {}  # weight -> the op that last added to its gradient
    for op in reversed(range(len(weight))):
        arriving = [gradient[reader] for made, reader in forward if made == op] or [op]
        saved = [each for each in (op, *(made for made, reader in forward if reader == op)) if draw(st.booleans())]
        gradient[op] = ops.add("toy.grad", Phase.BACKWARD, [*arriving, *saved], of=op)
        if weight[op] >= 0 and apart:
            earlier = [summed[weight[op]]] if weight[op] in summed else []
            summed[weight[op]] = ops.add("toy.grad_weight", Phase.BACKWARD, [*arriving, *saved, *earlier], of=op)
            ops.grows[-1] = False
        elif weight[op] >= 0:
            summed[weight[op]] = gradient[op]
    updates: dict[int, int] = {}
    for op, each in enumerate(weight):
        if each >= 0 and each not in updates:
            updates[each] = ops.add("update", Phase.UPDATE, [summed[each]], of=op)
        elif each >= 0:
            ops.add("refresh", Phase.REFRESH, [updates[each]], of=op)


# ---- plans -----------------------------------------------------------------------------------------------------------


@st.composite
def planned(draw: st.DrawFn, most_devices: int = 4) -> tuple[Problem, Plan]:
    """A problem of the ideal machine and a plan for it."""
    graph, stages = draw(step_graphs(most_stages=4))
    devices = draw(st.integers(1, most_devices))
    seconds = np.repeat(graph.flops[:, None], devices, axis=1) * draw(st.sampled_from((1.0, 2.0)))
    cluster = draw(clusters(devices))
    on = draw(on_ranks(max(stages) + 1, devices) | on_any(max(stages) + 1, devices))
    micro_batches = draw(st.integers(1, 3))
    divides = all(micro_batches % len(several) == 0 for several in on)
    sharing: Sharing = draw(st.sampled_from(("split", "turns"))) if divides else "split"
    has_blocks = (named_blocks(graph) >= 0).any()
    when: Recomputing = draw(st.sampled_from(("late", "early", "block") if has_blocks else ("late", "early")))
    order = draw(orders_of(graph, ranks_of(on), micro_batches, sharing))
    update: Update = draw(st.sampled_from(("step", "micro_batch"))) if order != AS_READY else "step"
    holders = {(weight, len(on[stages[op]])) for op, weight in graph.weight_uses.tolist()}
    is_alike = len(holders) == len(
        {weight for weight, _ in holders}
    )  # stages that share a weight have as many replicas
    may_shard = sharing == "split" and update == "step" and is_alike
    unequal: dict[int, tuple[tuple[int, ...], ...]] = {
        1: ((),), 2: ((), (1, 2), (3, 1)), 3: ((), (2, 1, 1)), 4: ((), (1, 1, 1, 3)),
    }  # fmt: skip
    shares = {several: draw(st.sampled_from(unequal[len(several)])) for several in on}
    zeros: list[Zero] = [0, 1, 2, 3] if order != AS_READY or micro_batches == 1 else [0, 1, 2]
    zero = draw(st.sampled_from(zeros)) if may_shard else 0
    groups = [group for group in (2, 3) if zero and all(len(several) in (1, group, 2 * group) for several in on)]
    offload = draw(st.booleans()) and may_shard and graph.is_training and (zero > 0 or max(map(len, on)) == 1)
    if offload:  # to some of the devices, which then update their own weights
        cpus = draw(st.sets(st.integers(0, devices - 1), min_size=1))
        kinds = ["cpu" if number in cpus else "gpu" for number in range(devices)]
        each = zip(cluster.devices, kinds, strict=True)
        cluster = replace(cluster, devices=tuple(replace(device, kind=kind) for device, kind in each))
    optimizer = draw(st.sampled_from(("sgd", "adam"))) if offload else "sgd"
    problem = Problem(graph, cluster, optimizer, op_seconds=seconds)
    schedule = Schedule(
        micro_batches=micro_batches, stages=stages, order=order, update=update, zero=zero, offload=offload,
        shard_group=draw(st.sampled_from([0, *groups])),
        recompute=tuple(sorted(draw(st.sets(st.integers(0, max(stages)))))), recompute_at=when,
        sharing=sharing, shares=tuple(shares[several] for several in on) if sharing == "split" else (),
    )  # fmt: skip
    return problem, Plan(tuple(on[stage] for stage in stages), schedule=schedule)


@st.composite
def on_any(draw: st.DrawFn, stages: int, devices: int) -> tuple[tuple[int, ...], ...]:
    """(stages,) the devices of each, whichever: some may be those of several stages."""
    return tuple(
        tuple(draw(st.permutations(range(devices)))[: draw(st.integers(1, min(4, devices)))]) for _ in range(stages)
    )


@st.composite
def on_ranks(draw: st.DrawFn, stages: int, devices: int) -> tuple[tuple[int, ...], ...]:
    """(stages,) the devices of each, where those of a rank have one stage, several that follow one another, some in
    turns, or two as a V.
    """
    shapes = [sorted(draw(st.lists(st.integers(0, 1), min_size=stages, max_size=stages)))]
    shapes += [[stage % ranks for stage in range(stages)] for ranks in range(1, stages + 1) if stages % ranks == 0]
    shapes += [[min(stage, stages - 1 - stage) for stage in range(stages)]] if stages % 2 == 0 else []
    rank_of = draw(st.sampled_from([shape for shape in shapes if max(shape) < devices]))
    free, of_rank = list(draw(st.permutations(range(devices)))), list[tuple[int, ...]]()
    for rank in range(max(rank_of) + 1):
        most = min(4, len(free) - (max(rank_of) - rank))
        of_rank.append(tuple(free.pop() for _ in range(draw(st.integers(1, most)))))
    return tuple(of_rank[rank] for rank in rank_of)


def ranks_of(on: Sequence[tuple[int, ...]]) -> Ranks:
    """The stages of each device, (stages,) devices; none if a device has some stages of another one, and not all."""
    stages = {device: tuple(s for s, several in enumerate(on) if device in several) for each in on for device in each}
    ranks = sorted(set(stages.values()))
    is_apart = sum(map(len, ranks)) == len(on)
    return tuple(ranks) if is_apart else ()


def orders_of(
    graph: OpGraph, ranks: Ranks, micro_batches: int, sharing: Sharing
) -> st.SearchStrategy[Extension[PassOrder]]:
    """Orders of passes that run so many micro-batches through stages, and none."""
    if not ranks or (sharing == "turns" and any(len(stages) > 1 for stages in ranks)):
        return st.just(AS_READY)
    has_parts = any(kind.endswith(".grad_weight") for kind in graph.kinds) or "update" not in graph.kinds
    return st.sampled_from([AS_READY, *(order for order in ORDERS if _takes(order, ranks, micro_batches, has_parts))])


def _takes(order: Extension[PassOrder], ranks: Ranks, micro_batches: int, has_parts: bool) -> bool:
    """Whether an order takes these, and does not run parts of backward passes where ops have none."""
    try:
        passes = joined_passes(order.built, ranks, micro_batches)
    except InputError:
        return False
    return has_parts or all(each.kind != PassKind.WEIGHT_GRADIENT for of_rank in passes for each in of_rank)


@st.composite
def divided(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """A perceptron's step through stages whose ops are divided at random, the batch in equal parts or not."""
    widths = draw(st.sampled_from(([12, 6], [6, 12, 6], [6, 12, 6, 12])))  # of which a twelfth is whole bytes
    micro_batches, count = draw(st.sampled_from((1, 2, 4))), draw(st.integers(1, len(widths) - 1))
    graph = mlp(widths, 12 * micro_batches).graph
    layer = [int("".join(filter(str.isdigit, name)) or 0) for name in graph.names]
    stages = tuple(min(each, count - 1) for each in layer)
    mesh, *others = draw(st.sampled_from(MESHES))
    of_stage = [mesh, *(draw(st.sampled_from([mesh, *others])) for _ in range(count - 1))]
    devices, rng = np.cumsum([0, *map(shards, of_stage)]), np.random.default_rng(draw(st.integers(0, 99)))
    on = [tuple(range(first, end)) for first, end in pairwise(devices.tolist())]
    splits = [random_split(graph, each, rng) for each in of_stage]
    schedule = Schedule(
        micro_batches, stages, draw(orders_of(graph, ranks_of(on), micro_batches, "split")),
        tuple(sorted(draw(st.sets(st.integers(0, count - 1))))), draw(st.sampled_from(("late", "early"))),
        all_reduce=draw(st.sampled_from(get_args(AllReduce))),
    )  # fmt: skip
    problem = Problem(graph, draw(clusters(int(devices[-1]))), draw(st.sampled_from(("sgd", "adam"))))
    seconds = np.array(draw(st.lists(SECONDS, min_size=len(graph), max_size=len(graph))))
    problem = replace(problem, op_seconds=np.repeat(seconds[:, None], devices[-1], axis=1))
    split = tuple(splits[stage][op] if of_stage[stage] else () for op, stage in enumerate(stages))
    return problem, Plan(tuple(on[stage] for stage in stages), None, schedule, split, mesh)


@st.composite
def run_somehow(draw: st.DrawFn) -> tuple[Problem, Plan]:
    """Plans of all kinds on machines of all kinds, but op placements on the ideal one alone (`strategies.cases`)."""
    problem, plan = draw(planned() | divided())
    if plan.is_placement:
        return problem, plan
    runtime, count = draw(st.sampled_from(list(RUNTIMES.values()))), len(problem.cluster)
    if problem.cluster.is_cpu.any():
        runtime = replace(runtime, host=None)
    elif draw(st.booleans()):
        runtime = replace(runtime, host=draw(st.none() | hosts(exact=False)))
    slower = draw(st.lists(st.sampled_from((1.0, 2.0, 3.0)), min_size=count, max_size=count))
    assert problem.op_seconds is not None
    pass_seconds = draw(st.sampled_from((0.0, 1.0)))
    devices = tuple(replace(device, pass_seconds=pass_seconds) for device in problem.cluster.devices)
    cluster = replace(problem.cluster, devices=devices)
    return replace(problem, cluster=cluster, runtime=runtime, op_seconds=problem.op_seconds * slower), plan
