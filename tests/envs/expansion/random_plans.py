"""Random problems and plans for them: training steps through stages, with replicas, micro-batches and recomputation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Recomputing, Schedule, Sharing, Update, Zero
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem
from tests.oracle.strategies import SECONDS, clusters

ORDERS = (AS_READY, "gpipe", "early_backward_a", "early_backward_b")
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


@st.composite
def planned(draw: st.DrawFn, most_devices: int = 4) -> tuple[Problem, Plan]:
    """A problem and a plan for it."""
    graph, stages = draw(step_graphs())
    devices = draw(st.integers(1, most_devices))
    seconds = np.repeat(graph.flops[:, None], devices, axis=1) * draw(st.sampled_from((1.0, 2.0)))
    problem = Problem(graph, draw(clusters(devices)), "sgd", op_seconds=seconds)
    on = [
        tuple(draw(st.permutations(range(devices)))[: draw(st.integers(1, min(3, devices)))])
        for _ in range(max(stages) + 1)
    ]
    micro_batches = draw(st.integers(1, 3))
    divides = all(micro_batches % len(several) == 0 for several in on)
    sharing: Sharing = draw(st.sampled_from(("split", "turns"))) if divides else "split"
    has_blocks = (named_blocks(graph) >= 0).any()
    when: Recomputing = draw(st.sampled_from(("late", "early", "block") if has_blocks else ("late", "early")))
    apart = len({device for several in on for device in several}) == sum(map(len, on))
    order = draw(st.sampled_from(ORDERS if apart else ORDERS[:1]))
    update: Update = draw(st.sampled_from(("step", "micro_batch"))) if order != AS_READY else "step"
    may_shard = sharing == "split" and update == "step"
    unequal: dict[int, tuple[tuple[int, ...], ...]] = {1: ((),), 2: ((), (1, 2), (3, 1)), 3: ((), (2, 1, 1))}
    shares = tuple(draw(st.sampled_from(unequal[len(several)])) for several in on) if sharing == "split" else ()
    zeros: list[Zero] = [0, 1, 2, 3] if order != AS_READY or micro_batches == 1 else [0, 1, 2]
    schedule = Schedule(
        micro_batches=micro_batches, stages=stages, order=order, update=update,
        zero=draw(st.sampled_from(zeros)) if may_shard else 0,
        recompute=tuple(sorted(draw(st.sets(st.integers(0, max(stages)), max_size=2)))), recompute_at=when,
        sharing=sharing, shares=shares,
    )  # fmt: skip
    return problem, Plan(tuple(on[stage] for stage in stages), schedule=schedule)
