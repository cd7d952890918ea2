"""Draft: the expanded graph while it is written, in blocks of ops and of edges."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from envs.expansion.exchanges import set_exchange_pace
from envs.expansion.expanded import Expansion, Role, TensorSlice
from envs.expansion.launches import collectives_of
from envs.expansion.layout import Layout
from envs.expansion.shares import kinds_of_devices
from envs.expansion.written_graph import written
from graphs.algorithms.order import compressed_rows
from graphs.algorithms.pairs import ranges
from graphs.op_graph import RESIDENT, Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.weight_memory import WeightMemory
from graphs.problem import Problem

FREE = 0.0  # the share of the batch that an op computes which takes no time

_AMOUNTS = ("flops", "bytes_accessed", "output_bytes", "sent_bytes", *RESIDENT)

Values = Ints | int
Columns = dict[str, NDArray[Any]]  # by what they say of the ops, (ops,) each


class Divided(Protocol):
    """What ops cost that are divided by their indices, or updates of weights that replicas hold in parts."""

    def fill(self, origin: Ints, shard: Ints, work: Ints, amounts: Columns, op_seconds: Floats) -> None:
        """Write what ops cost: at the positions `work`, (work,), those of shards of ops, (work,) each.

        Seconds, (ops, kinds), are those on the first devices.
        """
        ...

    def weights(self, origin: Ints, device: Ints, work: Ints) -> tuple[Floats, WeightMemory, Ints, Ints]:
        """(pieces,) shares of weights, and what they occupy; (uses, 2) op, piece; (pieces,) the weight of each."""
        ...


class Draft:
    """Ops and edges of an expanded graph. Ops are numbered as they are added; the first are the layout's copies."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.ops = 0
        self._blocks: list[Columns] = []
        self._edges: list[Ints] = []
        self._control: list[Bools] = []
        self._messages: list[Floats] = []
        self._sent: list[tuple[Ints, Floats, Floats]] = []  # ops, bytes, pace
        self.pieces: dict[int, TensorSlice] = {}
        """By op the part of a tensor that it holds; of those that were added for shards."""
        self.sums: dict[int, tuple[TensorSlice, ...]] = {}
        """By op at which an all-reduce ends, what has been added up."""
        self.lengthened: Ints = np.zeros(0, np.int64)
        """Ops that take `Device.pass_seconds` longer."""
        self.add_like(np.arange(len(layout.origin)), Role.WORK)

    def add(
        self,
        count: int,
        role: Role | Ints,
        device: Values,
        *,
        origin: Values = -1,
        micro_batch: Values = -1,
        replica: Values = -1,
        stage: Values = -1,
        share: Floats | float = FREE,
        output_bytes: Floats | float = np.nan,
    ) -> Ints:
        """Ops, (count,), each value one for all or (count,); returns their numbers.

        An op computes a share of the batch of its origin, or is free. Its output is as large as that share of the
        origin's, unless `output_bytes` are given; that of a free op must be, or is nothing.
        """
        columns = {
            "role": role, "device": device, "origin": origin, "micro_batch": micro_batch, "replica": replica,
            "stage": stage, "share": share, "output_share": share, "output_bytes": output_bytes,
        }  # fmt: skip
        return self._add(count, columns)

    def add_like(self, like: Ints, role: Role, *, output_share: Floats | None = None) -> Ints:
        """Ops that act for the same as copies of the layout, (ops,), where these are; returns their numbers.

        They compute what these do, or take no time and hold a share of the output for the whole batch, (ops,).
        """
        layout, origin = self.layout, self.layout.origin[like]
        share = layout.share[like] if output_share is None else output_share
        columns = {
            "role": int(role), "device": layout.device[like], "origin": origin,
            "micro_batch": layout.micro_batch[like], "replica": layout.replica[like], "stage": layout.stage[origin],
            "share": share if output_share is None else FREE, "output_share": share, "output_bytes": np.nan,
        }  # fmt: skip
        return self._add(len(like), columns)

    def _add(self, count: int, columns: dict[str, Any]) -> Ints:
        self._blocks.append({key: _filled(value, count) for key, value in columns.items()})
        self.ops += count
        return np.arange(self.ops - count, self.ops)

    def connect(
        self,
        producers: Values,
        consumers: Values,
        *,
        control: Bools | bool = False,
        message_bytes: Floats | float = np.nan,
    ) -> None:
        """Edges from producers to consumers, each value one for all or (edges,); a message replaces what is carried."""
        one, other = np.size(producers), np.size(consumers)
        pairs = np.empty((max(one, other) if one and other else 0, 2), np.int64)
        pairs[:, 0], pairs[:, 1] = producers, consumers
        self._edges.append(pairs)
        self._control.append(_filled(control, len(pairs)))
        self._messages.append(_filled(message_bytes, len(pairs)))

    def send(self, ops: Ints, sent_bytes: Floats, pace: Floats) -> None:
        """What transfers of the outputs of ops move, (ops,) bytes, and how many times what their links say they take.

        An output occupies what was said when the op was added, whatever is sent.
        """
        self._sent.append((ops, sent_bytes, pace))

    def column(self, key: str) -> NDArray[Any]:
        """(ops,) what was said of all ops so far: "role", "device", "origin", "micro_batch", "replica", "stage"."""
        return np.concatenate([block[key] for block in self._blocks])

    @property
    def edges(self) -> Ints:
        """(edges, 2) those so far."""
        return np.concatenate([np.zeros((0, 2), np.int64), *self._edges])

    @property
    def control(self) -> Bools:
        """(edges,) which of those so far are control edges."""
        return np.concatenate([np.zeros(0, np.bool_), *self._control])

    @property
    def messages(self) -> Floats:
        """(edges,) the bytes of the messages of those so far, or NaN."""
        return np.concatenate([np.zeros(0), *self._messages])

    def reroute(self, which: Ints, producers: Ints, *, end: int = 0) -> None:
        """Let some of the edges so far, by their positions, lead from other ops, (edges,), or to them if `end` is 1."""
        edges = self.edges
        edges[which, end] = producers
        self._edges = [edges]

    def resize(self, copies: Ints, output_bytes: Floats | float) -> None:
        """Say what the outputs of copies of the layout, (copies,), occupy."""
        self._blocks[0]["output_bytes"][copies] = output_bytes

    def build(self, shared: Callable[[Problem, float], Problem], divided: Divided | None = None) -> Expansion:
        """The expansion; `shared` is the problem of computing a share of the batch (`envs.expansion.shares`).

        `divided` says what shards cost, and which parts of weights they use, if the plan divides ops by their indices.
        """
        plan, given = self.layout.plan, self.layout.problem
        columns = {key: self.column(key) for key in self._blocks[0]}
        graph, op_seconds, memory = self._graph(columns, shared, divided)
        of_op = (
            columns[key].astype(np.int64) for key in ("device", "origin", "micro_batch", "replica", "stage", "role")
        )
        placement, origin, micro_batch, replica, stage, role = of_op
        by_nccl = bool(plan.split) and self.layout.all_reduce == "nccl"
        pace = np.ones(self.ops if self._sent or by_nccl else 0)
        for ops, _, times in self._sent:
            pace[ops] = times
        tensor = (origin + 1) * (plan.schedule.micro_batches + 1) + micro_batch + 1
        if by_nccl:
            set_exchange_pace(graph, given, placement, tensor, pace)
        host = given.runtime.host and replace(given.runtime.host, per_device=not plan.is_placement, in_order=False)
        has_processes = host is not None and host.per_device
        collectives = collectives_of(graph, placement, stage, role, tensor) if has_processes else None
        runtime = replace(given.runtime, host=host, streams=given.runtime.streams and plan.is_placement)
        expanded = replace(
            given, graph=graph, op_seconds=op_seconds, memory=memory, pace=pace, runtime=runtime,
            collectives=collectives,
        )  # fmt: skip
        return Expansion(
            given, plan, expanded, placement, origin, micro_batch, replica, stage, role, self.pieces, self.sums
        )  # fmt: skip

    def _graph(
        self, columns: Columns, shared: Callable[[Problem, float], Problem], divided: Divided | None
    ) -> tuple[OpGraph, Floats, WeightMemory]:
        """The graph, (ops, devices) seconds, and what weights occupy."""
        given, origin, share = self.layout.problem, columns["origin"].astype(np.int64), columns["share"]
        ops, work = len(origin), np.flatnonzero(share > FREE)
        amounts = {key: np.zeros(ops) for key in _AMOUNTS}
        devices = kinds_of_devices(given)
        op_seconds = np.zeros((ops, devices))
        size, output_share = columns["output_bytes"], columns["output_share"]
        resident = [key for key in RESIDENT if len(getattr(given.graph, key))]
        for value in np.unique(output_share[output_share > FREE]).tolist():
            part, these = shared(given, value), np.flatnonzero(share == value)
            made = np.flatnonzero(output_share == value)
            assert part.op_seconds is not None
            for key in ("flops", "bytes_accessed", *resident):
                amounts[key][these] = getattr(part.graph, key)[origin[these]]
            for key in ("output_bytes", "sent_bytes"):
                amounts[key][made] = getattr(part.graph, key)[origin[made]]
            op_seconds[these] = part.op_seconds[origin[these], :devices]
        weights, frozen, memory = given.graph.weights, given.graph.frozen, given.weight_memory
        kept_in = given.graph.weight_precisions
        if divided is None:
            uses = _weight_uses(given.graph, origin, work)
        else:
            divided.fill(origin[work], columns["replica"][work], work, amounts, op_seconds)
            stored, memory, uses, parts = divided.weights(origin, columns["device"], work)
            weights = weights[parts] * stored
            frozen = frozen[parts] if len(frozen) else frozen
            kept_in = kept_in and tuple(kept_in[part] for part in parts.tolist())
        op_seconds[self.lengthened] += given.cluster.pass_seconds[:devices]
        for key in ("output_bytes", "sent_bytes"):
            amounts[key] = np.where(np.isnan(size), amounts[key], size)
        for of_ops, sent, _ in self._sent:
            amounts["sent_bytes"][of_ops] = sent
        if not len(given.graph.transfer_bytes) and not self._sent:
            amounts["sent_bytes"] = np.zeros(0)
        amounts |= {key: np.zeros(0) for key in RESIDENT if key not in resident}
        values = amounts | {
            "edges": self.edges, "control": self.control, "edge_bytes": self.messages, "weights": weights,
            "weight_uses": uses, "frozen": frozen, "phase": _phases(given.graph, columns),
        }  # fmt: skip
        values["transfer_bytes"] = values.pop("sent_bytes")
        copied = np.where(share > FREE, origin, -1)
        seen = self.layout.seen_shares(np.maximum(origin, 0), columns["replica"].astype(np.int64))
        held = given.graph.held and given.graph.held.of_copies(copied, seen)
        role = columns["role"].astype(np.int64)
        graph = written(self.layout, origin, role, values, held, kept_in)
        op_seconds = np.broadcast_to(op_seconds, (ops, len(given.cluster)))
        return graph, op_seconds, memory.of_copies(np.where(np.isin(role, (Role.WORK, Role.PARCEL)), origin, -1))


def _filled(value: NDArray[Any] | float, count: int) -> NDArray[Any]:
    """(count,) the values, or one for all."""
    values = np.asarray(value)
    return np.full(count, values) if values.size == 1 else values


def _phases(graph: OpGraph, columns: Columns) -> Ints:
    """(ops,) the phase of the op that each acts for; what is computed again is part of the backward pass."""
    of_origin = np.where(columns["origin"] >= 0, graph.phase[columns["origin"]], Phase.FORWARD)
    return np.where(np.isin(columns["role"], (Role.RECOMPUTED, Role.ARRIVE)), Phase.BACKWARD, of_origin)


def _weight_uses(graph: OpGraph, origin: Ints, work: Ints) -> Ints:
    """(uses, 2) expanded op, weight: every copy of an op uses its weights."""
    starts, uses = compressed_rows(graph.weight_uses[:, 0], graph.weight_uses[:, 1], len(graph))
    count = np.diff(starts)[origin[work]]
    weight = graph.weight_uses[uses[ranges(starts[origin[work]], count)], 1]
    return np.stack([np.repeat(work, count), weight], axis=1)
