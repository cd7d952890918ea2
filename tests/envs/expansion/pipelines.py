"""Pipelines with known answers: chains of stages, plans through them, and their schedules as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.expansion.expanded import Role
from envs.pass_orders import PassOrder, Ranks
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Recomputing, Schedule, Shares, Sharing, Update
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster, Device
from graphs.foundation.by_name import Extension
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem

Each = float | Sequence[float]  # one for all stages, or (stages,)


@dataclass(frozen=True)
class Pipeline:
    """A chain of stages. Seconds and bytes are those of one micro-batch, computed by one device.

        stage i     ->  "s<i>"  ->       forward; its output is kept for both parts of the backward pass
                    <- "s<i>.grad" <-    input gradient, in `backward` seconds
                       "s<i>.grad_weight" -> "s<i>.update"

    The weight gradient waits for the input gradient. In no time of its own, it makes the two parts one backward pass.
    """

    stages: int
    micro_batches: int = 1
    forward: Each = 1.0  # seconds
    backward: Each = 1.0  # seconds
    weight_gradient: Each = 0.0  # seconds
    activation: float = 0.0  # bytes of the output of each forward op, kept and sent
    gradient: float = 0.0  # bytes of each input gradient that is sent to the stage before
    weights: float = 0.0  # bytes of each stage
    update: float = 0.0  # seconds of a step, or of a micro-batch where each one updates the weights
    is_training: bool = True

    def graph(self) -> OpGraph:
        """The ops of the whole batch: forward 0, 1, ..., then of the last stage to the first its two gradients, then
        the updates.
        """
        count, ops = self.stages, range(self.stages)
        grads = [count + 2 * (count - 1 - stage) for stage in ops]
        updates = [3 * count + stage for stage in ops]
        parts = [
            *((f"s{i}", "toy", Phase.FORWARD, i, _of(self.forward, i), self.activation) for i in ops),
            *(
                part
                for i in reversed(ops)
                for part in (
                    (f"s{i}.grad", "toy.grad", Phase.BACKWARD, i, _of(self.backward, i), self.gradient if i else 0.0),
                    (f"s{i}.grad_weight", "toy.grad_weight", Phase.BACKWARD, i, _of(self.weight_gradient, i), 0.0),
                )
            ),
            *((f"s{i}.update", "toy.update", Phase.UPDATE, i, self.update, 0.0) for i in ops),
        ]  # fmt: skip
        edges = [
            *((i, i + 1) for i in ops[:-1]),
            *((grads[i + 1], grads[i]) for i in ops[:-1]),
            *((i, grads[i] + part) for i in ops for part in (0, 1)),
            *((grads[i], grads[i] + 1) for i in ops),
            *((grads[i] + 1, updates[i]) for i in ops),
        ]
        uses = [(op, i) for i in ops for op in (i, grads[i], updates[i])]
        if not self.is_training:
            parts, edges, uses = parts[:count], edges[: count - 1], [(i, i) for i in ops]
        names, kinds, phase, mirror, seconds, size = zip(*parts, strict=True)
        of_batch = np.where(np.array(phase) == Phase.UPDATE, 1, self.micro_batches)
        output_bytes = np.where([kind.endswith("_weight") for kind in kinds], self.weights, np.array(size) * of_batch)
        return OpGraph(
            f"chain{count}", names, kinds, np.array(seconds) * of_batch, np.zeros(len(parts)), output_bytes,
            np.reshape(np.array(edges, np.int64), (-1, 2)), weights=np.full(count, self.weights),
            weight_uses=np.array(uses), phase=np.array(phase),
            mirror=np.where(np.arange(len(parts)) < count, -1, np.array(mirror)),
        )  # fmt: skip

    def problem(self, cluster: Cluster | None = None, *, optimizer: str = "none") -> Problem:
        """The chain on a cluster, of a device for each stage without delays between them unless given."""
        return Problem(self.graph(), cluster or servers(self.stages), optimizer)

    def plan(
        self,
        order: Extension[PassOrder] | str = AS_READY,
        *,
        ranks: Ranks = (),
        replicas: int | Sequence[int] = 1,
        recompute: Sequence[int] = (),
        recompute_at: Recomputing = "late",
        sharing: Sharing = "split",
        shares: tuple[Shares, ...] = (),
        update: Update = "step",
    ) -> Plan:
        """The chain in its micro-batches. Each rank is one device, or several that follow one another.

        `ranks` are the stages of each, (ranks,) tuples; unless given, each stage is one. `replicas` are the devices of
        each rank, one number for all or (ranks,).
        """
        ranks = ranks or tuple((stage,) for stage in range(self.stages))
        counts = [replicas] * len(ranks) if isinstance(replicas, int) else list(replicas)
        devices: dict[int, tuple[int, ...]] = {}
        for rank, stages in enumerate(ranks):
            first = sum(counts[:rank])
            devices |= dict.fromkeys(stages, tuple(range(first, first + counts[rank])))
        graph = self.graph()
        stage_of = [int(name[1:].partition(".")[0]) for name in graph.names]
        schedule = Schedule(
            micro_batches=self.micro_batches, stages=tuple(stage_of), order=order, recompute=tuple(recompute),
            recompute_at=recompute_at, sharing=sharing, shares=shares, update=update,
        )  # fmt: skip
        return Plan(tuple(devices[stage] for stage in stage_of), schedule=schedule)


def servers(
    devices: int, *, latency: float = 0.0, bandwidth: float = np.inf, memory: float = 1e18, launch: float = 0.0,
    shared_out: bool = False,
) -> Cluster:  # fmt: skip
    """Devices that compute one FLOP in a second, each pair with a channel, or with one channel out of each device."""
    device = Device("toy", "gpu", 1.0, 1.0, memory, launch)
    return Cluster.uniform(
        f"servers{devices}", device, devices, latency=latency, bandwidth=bandwidth, shared_out=shared_out
    )


def interleaved(ranks: int, per_rank: int = 2) -> Ranks:
    """Stages r, P + r, 2 P + r, ... on rank r of P."""
    return tuple(tuple(range(rank, ranks * per_rank, ranks)) for rank in range(ranks))


def v_shaped(ranks: int) -> Ranks:
    """Stages r and 2 P - 1 - r on rank r of P."""
    return tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks))


def drawn(timeline: Timeline, *, second: float = 1.0, parts: bool = False) -> list[str]:
    """Of each device its passes, as people draw pipelines: F0 F1 B0, each as long as it takes, and spaces between them.

    R is what is computed again, U an update. With `parts` the two parts of a backward pass are apart, as I and W.
    Where a device has several stages, the stage stands before: 0F1. `second` is what one column stands for.
    """
    expansion = timeline.expansion
    assert expansion is not None
    graph = expansion.problem.graph
    took_time = (timeline.finish > timeline.start) & (expansion.origin >= 0)
    rows: list[dict[str, tuple[float, float]]] = []
    for device in range(len(expansion.problem.cluster)):
        ops = np.flatnonzero((expansion.placement == device) & took_time)
        several = len(np.unique(expansion.stage[ops])) > 1
        spans: dict[str, tuple[float, float]] = {}
        for op in ops.tolist():
            is_weight = expansion.given.graph.kinds[expansion.origin[op]].endswith(".grad_weight")
            kind = "FBU"[graph.phase[op]] if not parts or graph.phase[op] != Phase.BACKWARD else "IW"[is_weight]
            kind = "R" if expansion.role[op] == Role.RECOMPUTED else kind
            number = str(expansion.micro_batch[op]) if expansion.micro_batch[op] >= 0 else ""
            label = f"{expansion.stage[op] if several else ''}{kind}{number}"
            start, finish = spans.get(label, (np.inf, 0.0))
            spans[label] = (min(start, timeline.start[op]), max(finish, timeline.finish[op]))
        rows.append(spans)
    width = 1 + max((len(label) for spans in rows for label in spans), default=0)
    return [_row(spans, width, second) for spans in rows]


def _row(spans: dict[str, tuple[float, float]], width: int, second: float) -> str:
    row = ""
    for label, (start, finish) in sorted(spans.items(), key=lambda span: span[1]):
        begin, end = (round(width * time / second) for time in (start, finish))
        row = row.ljust(begin) + (label.ljust(end - begin - 1, "-") if end - begin > width else label)
    return row


def _of(value: Each, stage: int) -> float:
    return float(value if isinstance(value, int | float) else value[stage])


OWN = """
from envs.pass_orders import Pass, PassKind


class Mine:
    def passes(self, ranks, micro_batches):
        return {returned}


def build():
    return Mine()
"""


def own_order(folder: Path, returned: str) -> str:
    """The spec of an order that returns what an expression says."""
    (folder / "mine.py").write_text(OWN.format(returned=returned))
    return f"{folder / 'mine.py'}:build"
