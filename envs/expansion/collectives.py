"""Collectives: sums that several devices need, written as sends of parts, which run while the devices compute.

    ring            with R members, 2 (R - 1) steps; in each of them every member passes an R-th part on to the next
    direct          every member sends to each other one its part, and later on the sum of its own part
    hierarchical    rings within each server until each member has a part; a ring between servers for each part; then
                    rings within each server again
    nccl            one transfer on each channel that NCCL would use, all at once, once all members are ready: they
                    take what NCCL takes (`envs.expansion.nccl`)

Each moves 2 (R - 1) times the bytes that are summed up, which is the least. Half of that is a reduce-scatter, after
which each member has its part of the sum, and half an all-gather of such parts. A ring goes from server to server once.
See Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.nccl import Route, collective_seconds, route_of
from envs.plans.schedule import AllReduce
from graphs.op_graph import Floats, Ints

Number = TypeVar("Number", np.int64, np.float64)


@dataclass(frozen=True, eq=False)
class Sums:
    """What is summed up, over as many members each."""

    device: Ints  # (sums, members) in the order of the ring
    replica: Ints  # (sums, members) of the stage
    micro_batch: Ints  # (sums, members) or -1
    origin: Ints  # (sums,) a gradient, for which the ops of the sum act
    stage: Ints  # (sums,)
    bytes: Floats  # (sums,)

    @property
    def members(self) -> int:
        """How many devices have a summand, and need the sum."""
        return int(self.device.shape[1])

    def add(self, draft: Draft, role: Role, *, steps: int = 1, output_bytes: Floats | float = 0.0) -> Ints:
        """(sums, steps, members) new ops, which take no time; `output_bytes` are one for all or (sums,)."""
        shape = (len(self.bytes), steps, self.members)

        def of_sum(values: NDArray[Number]) -> NDArray[Number]:
            return np.broadcast_to(values[:, None, None], shape).ravel()

        def of_member(values: Ints) -> Ints:
            return np.broadcast_to(values[:, None, :], shape).ravel()

        size = np.broadcast_to(np.asarray(output_bytes, np.float64), len(self.bytes))
        return draft.add(
            math.prod(shape), role, of_member(self.device), origin=of_sum(self.origin), stage=of_sum(self.stage),
            micro_batch=of_member(self.micro_batch), replica=of_member(self.replica), output_bytes=of_sum(size),
        ).reshape(shape)  # fmt: skip

    def of(self, rows: Ints) -> Sums:
        """Some of the sums, (rows,)."""
        return Sums(
            self.device[rows], self.replica[rows], self.micro_batch[rows], self.origin[rows], self.stage[rows],
            self.bytes[rows],
        )  # fmt: skip

    def grouped(self, order: Ints, parts: int) -> Sums:
        """Sums over fewer members: `order`, (groups, fewer), are positions of the members of each; all take a part."""
        groups = len(order)

        def of_members(values: Ints) -> Ints:
            return values[:, order].reshape(-1, order.shape[1])

        return Sums(
            of_members(self.device), of_members(self.replica), of_members(self.micro_batch),
            self.origin.repeat(groups), self.stage.repeat(groups), (self.bytes / parts).repeat(groups),
        )  # fmt: skip


def collective(
    draft: Draft, kind: AllReduce, sums: Sums, ready: Ints, servers: int = 1, *, scatters: bool = True,
    gathers: bool = True,
) -> Ints:  # fmt: skip
    """(sums, members) ops that end when the whole sum is on the device of each member.

    `ready`, (sums, members), end when the summand of each is there. The members of each server follow one another;
    there are as many on each of the `servers`. It is an all-reduce; a reduce-scatter if it does not gather the parts of
    the sum; and an all-gather of such parts if it does not scatter summands.
    """
    if kind == "direct":
        return _direct(draft, sums, ready, scatters, gathers)
    if kind == "nccl":
        return _nccl(draft, sums, ready, is_half=not (scatters and gathers))
    if kind == "hierarchical" and 1 < servers < sums.members:
        return _hierarchical(draft, sums, ready, servers, scatters, gathers)
    return _ring(draft, sums, ready, (sums.members - 1) * (scatters + gathers))


def _ring(draft: Draft, sums: Sums, ready: Ints, steps: int) -> Ints:
    """(sums, members) ops that end after the last step; a member sends once it has what the one before has sent.

    After members - 1 steps each has a part of the sum, and after as many again, or of a gathering, all parts.
    """
    sends = sums.add(draft, Role.SEND, steps=steps, output_bytes=sums.bytes / sums.members)
    done = sums.add(draft, Role.SUM)
    turns = np.concatenate([ready[:, None], sends, done], axis=1)  # (sums, steps + 2, members)
    draft.connect(turns[:, :-1].ravel(), turns[:, 1:].ravel(), control=True)
    draft.connect(sends.ravel(), np.roll(turns[:, 2:], -1, axis=2).ravel())
    return done[:, 0]


def _direct(draft: Draft, sums: Sums, ready: Ints, scatters: bool, gathers: bool) -> Ints:
    """As `collective`. A member sends to the next one first, then to the one after that, and so on."""
    others = np.arange(1, sums.members)[:, None]
    target = (np.arange(sums.members) + others) % sums.members  # (members - 1, members)
    part = sums.bytes / sums.members
    steps = [*(sums.members - 1,) * scatters, *(1,) * gathers]
    sends = [sums.add(draft, Role.SEND, steps=each, output_bytes=part) for each in steps]
    done = sums.add(draft, Role.SUM)
    ready = ready[:, None]
    for free in sends:
        draft.connect(np.broadcast_to(ready, free.shape).ravel(), free.ravel(), control=True)
    for sent, arrived in itertools.pairwise([*sends, done]):
        shape = len(sent), *target.shape
        draft.connect(np.broadcast_to(sent, shape).ravel(), arrived[:, 0][:, target].ravel())
    draft.connect((sends[-1] if gathers else ready).ravel(), done.ravel(), control=True)
    return done[:, 0]


def _hierarchical(draft: Draft, sums: Sums, ready: Ints, servers: int, scatters: bool, gathers: bool) -> Ints:
    """As `collective`."""
    position = np.arange(sums.members).reshape(servers, -1)  # (servers, members of each)
    within, across = sums.grouped(position, 1), sums.grouped(position.T, position.shape[1])
    steps = position.shape[1] - 1
    if scatters:
        ready = _ring(draft, within, ready.reshape(within.device.shape), steps).reshape(ready.shape)
    parts = ready[:, position.T].reshape(across.device.shape)
    summed = _ring(draft, across, parts, (servers - 1) * (scatters + gathers))
    back = summed.reshape(ready.shape)[:, np.argsort(position.T.ravel())]
    if not gathers:
        return back
    return _ring(draft, within, back.reshape(within.device.shape), steps).reshape(ready.shape)


def _nccl(draft: Draft, sums: Sums, ready: Ints, *, is_half: bool) -> Ints:
    """As `collective`. A member's sum is there once all transfers have arrived, since all are the same rings."""
    begin, arrived, done = (sums.add(draft, Role.SUM)[:, 0] for _ in range(3))
    draft.connect(ready.ravel(), begin.ravel(), control=True)
    _wait_for_all(draft, arrived, done)
    members, of_sum = np.unique(sums.device, axis=0, return_inverse=True)
    for number, devices in enumerate(members.tolist()):
        route, rows = route_of(draft.layout.problem.cluster, tuple(devices)), np.flatnonzero(of_sum.ravel() == number)
        route = route.half() if is_half else route
        sends = sums.of(rows).grouped(route.source[None], 1).add(draft, Role.SEND)[:, 0]  # (sums, transfers)
        _wait_for_all(draft, begin[rows], sends)
        draft.connect(sends.ravel(), arrived[rows][:, route.target].ravel())
        sent, pace = _paces(draft, sums.of(rows), route)
        draft.send(sends.ravel(), sent.ravel(), pace.ravel())
    return done


def _wait_for_all(draft: Draft, ops: Ints, waiting: Ints) -> None:
    """Let each of (sums, waiting) ops wait for all of (sums, ops)."""
    pairs = np.broadcast_arrays(ops[:, :, None], waiting[:, None])
    draft.connect(pairs[0].ravel(), pairs[1].ravel(), control=True)


def _paces(draft: Draft, sums: Sums, route: Route) -> tuple[Floats, Floats]:
    """(sums, transfers) bytes that each transfer moves, and how many times what its link says it takes."""
    cluster, sent = draft.layout.problem.cluster, sums.bytes[:, None] * route.share
    pair = sums.device[:, route.source], sums.device[:, route.target]
    by_link = cluster.latency[pair] + sent / cluster.bandwidth[pair]
    host = draft.layout.problem.host
    late = 0.0 if host is None else host.lateness(np.full(len(sent), sums.device.shape[1]))
    seconds = collective_seconds(route.latency, sums.bytes * route.per_byte, late)[:, None]
    return sent, np.divide(np.broadcast_to(seconds, sent.shape), by_link, out=np.ones_like(by_link), where=by_link > 0)
