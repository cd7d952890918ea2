"""Random plans: both oracles agree with the engine, work adds up, and copies receive what they read and no more."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.random_plans import planned, run_somehow
from tests.oracle import oracle, simpy_oracle

thorough = settings(max_examples=examples(300, 20), deadline=None, suppress_health_check=list(HealthCheck))
brief = settings(thorough, max_examples=examples(150, 15))


@thorough
@given(run_somehow())
def test_both_oracles_agree_with_the_engine(case: tuple[Problem, Plan]) -> None:
    expansion = expand(*case)
    problem, placement = expansion.problem, expansion.placement.tolist()
    timeline = Simulator(problem, order=expansion.order).timeline(expansion.placement)
    assert problem.op_seconds is not None
    order = problem.runtime.order if expansion.order is None else expansion.order
    expected = oracle.simulate(problem, problem.op_seconds.tolist(), placement, order)
    other = simpy_oracle.simulate(problem, problem.op_seconds.tolist(), placement, order)
    assert timeline.start.tolist() == expected.start == other.start
    assert timeline.finish.tolist() == expected.finish == other.finish
    assert timeline.step_seconds == expected.step_seconds == other.step_seconds
    assert timeline.peak_bytes.tolist() == expected.peak_bytes


@brief
@given(planned())
def test_the_work_of_copies_adds_up(case: tuple[Problem, Plan]) -> None:
    problem, plan = case
    expansion = expand(problem, plan)
    layout, graph = Layout(problem, plan), problem.graph
    assert problem.op_seconds is not None
    assert expansion.problem.op_seconds is not None
    for op in range(len(graph)):
        copies = np.flatnonzero((expansion.origin == op) & (expansion.role == Role.WORK))
        again = np.flatnonzero((expansion.origin == op) & (expansion.role == Role.RECOMPUTED))
        devices = sorted(expansion.placement[copies].tolist())
        once = graph.phase[op] >= Phase.UPDATE
        on = (
            [layout.updated_on[each] for each in plan.devices[op]]
            if graph.phase[op] == Phase.UPDATE
            else plan.devices[op]
        )
        assert devices == sorted([*on] * (len(copies) // len(plan.devices[op])))
        holders = len(copies) if plan.schedule.zero else 1  # of the weights that each replica, or group, updates
        times = len(copies) // min(plan.schedule.shard_group or holders, holders) if once else 1
        seconds = expansion.problem.op_seconds[copies, expansion.placement[copies]].sum()
        assert seconds == pytest.approx(times * problem.op_seconds[op, 0])
        if len(again):
            assert layout.stage[op] in plan.schedule.recompute
            assert sorted(expansion.placement[again].tolist()) == devices
            assert expansion.problem.op_seconds[again].tolist() == expansion.problem.op_seconds[copies].tolist()


class Part(NamedTuple):
    """What a copy holds: an interval of a micro-batch, or of the step's only one."""

    micro_batch: int
    begin: Fraction
    end: Fraction

    @property
    def length(self) -> Fraction:
        return max(self.end - self.begin, Fraction(0))

    def of(self, other: Part) -> Part:
        """What of another both hold."""
        return Part(other.micro_batch, max(self.begin, other.begin), min(self.end, other.end))


class Received:
    """Which parts of which ops reach each copy, found from the edges of an expansion alone."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion = expansion
        self.layout = Layout(expansion.given, expansion.plan)
        graph = expansion.problem.graph
        self.into: list[list[int]] = [[] for _ in range(len(graph))]
        for edge in np.flatnonzero(~graph.control).tolist():
            self.into[graph.edges[edge, 1]].append(edge)

    def part(self, copy: int) -> Part:
        """What a copy computes; updates compute for the whole batch."""
        expansion, op = self.expansion, int(self.expansion.origin[copy])
        replicas, replica = len(expansion.plan.devices[op]), int(expansion.replica[copy])
        micro_batch = int(expansion.micro_batch[copy])
        if expansion.given.graph.phase[op] >= Phase.UPDATE or expansion.plan.schedule.sharing == "turns":
            return Part(micro_batch, Fraction(0), Fraction(1))
        given = dict(enumerate(expansion.plan.schedule.shares)).get(int(self.layout.stage[op]), ())
        shares = given or (1,) * replicas
        begin = sum(shares[:replica])
        return Part(micro_batch, Fraction(begin, sum(shares)), Fraction(begin + shares[replica], sum(shares)))

    def wanted(self, copy: int, producer: int) -> list[Part]:
        """The parts of an op that a copy must read."""
        part = self.part(copy)
        if part.micro_batch >= 0 or self.expansion.given.graph.phase[producer] >= Phase.UPDATE:
            return [part]
        return [part._replace(micro_batch=each) for each in range(self.expansion.plan.schedule.micro_batches)]

    def found(self, copy: int, producer: int) -> Iterator[tuple[int, int]]:
        """Copies of an op that a copy reads, and the edge that brings what it reads: from a slice, or itself."""
        expansion = self.expansion
        edges = expansion.problem.graph.edges
        for edge in self.into[copy]:
            source = int(edges[edge, 0])
            if expansion.role[source] == Role.SLICE:
                (cut,) = self.into[source]
                source = int(edges[cut, 0])
            if expansion.origin[source] == producer and expansion.role[source] <= Role.RECOMPUTED:
                yield source, edge

    def reads_again(self, copy: int, producer: int) -> bool:
        """Whether a copy reads what is computed again."""
        expansion, consumer = self.expansion, int(self.expansion.origin[copy])
        is_later = (
            expansion.role[copy] == Role.RECOMPUTED
            or expansion.given.graph.phase[consumer] == Phase.BACKWARD
        )  # fmt: skip
        exists = ((expansion.role == Role.RECOMPUTED) & (expansion.origin == producer)).any()
        return bool(is_later and exists and self.part_again(producer) == self.part_again(consumer))

    def part_again(self, op: int) -> tuple[int, str]:
        """The stage of an op and, where blocks are computed again one by one, its block: blocks.2 of blocks.2/op5."""
        graph = self.expansion.given.graph
        name = graph.names[op if graph.mirror[op] < 0 else graph.mirror[op]]
        by_block = self.expansion.plan.schedule.recompute_at == "block"
        return int(self.layout.stage[op]), name.rpartition("/")[0] if by_block else ""


def check_received(received: Received, copy: int, edge: int) -> int:
    """Check what a copy reads through an edge of the given graph; returns through how many it does so."""
    expansion, layout = received.expansion, received.layout
    given, graph = expansion.given.graph, expansion.problem.graph
    producer, parts = int(given.edges[edge, 0]), received.wanted(copy, int(given.edges[edge, 0]))
    found = list(received.found(copy, producer))
    role = Role.RECOMPUTED if received.reads_again(copy, producer) else Role.WORK
    assert {expansion.role[source] for source, _ in found} <= {role}
    if not layout.grows[producer]:
        ((source, _),) = found
        of_micro_batch = (expansion.origin == producer) & (expansion.role == role)
        of_micro_batch &= expansion.micro_batch == expansion.micro_batch[source]
        assert expansion.micro_batch[source] in {-1, parts[-1].micro_batch}
        here = expansion.placement[copy]
        assert expansion.placement[source] == here or here not in expansion.placement[of_micro_batch]
        return 1
    message = given.edge_bytes[edge] if len(given.edge_bytes) else np.nan
    for part in parts:
        sources = [(source, by) for source, by in found if expansion.micro_batch[source] == part.micro_batch]
        assert len({source for source, _ in sources}) == len(sources)
        assert sum(part.of(received.part(source)).length for source, _ in sources) == part.length
        for source, by in sources:
            read = part.of(received.part(source)).length / expansion.plan.schedule.micro_batches
            assert read > 0
            whole = given.sent_bytes[producer] if np.isnan(message) else message
            assert graph.carried_bytes[by] == pytest.approx(float(read) * whole)
            is_cut = expansion.role[graph.edges[by, 0]] == Role.SLICE
            assert is_cut == (np.isnan(message) and part.of(received.part(source)) != received.part(source))
            if is_cut:
                assert graph.output_bytes[graph.edges[by, 0]] == pytest.approx(
                    float(read) * given.output_bytes[producer]
                )
    assert len(found) == sum(
        len([1 for source, _ in found if expansion.micro_batch[source] == p.micro_batch]) for p in parts
    )
    return len(found)


@brief
@given(planned())
def test_every_copy_receives_what_it_reads_and_no_more(case: tuple[Problem, Plan]) -> None:
    expansion = expand(*case)
    received, graph = Received(expansion), expansion.given.graph
    is_summed = received.layout.is_summed
    # gradients of the first micro-batch are held until updates, which read no summed edge otherwise
    is_held = expansion.problem.weight_memory.gradients if is_summed.any() else np.zeros(len(expansion.role), np.bool_)
    for copy in np.flatnonzero(expansion.role <= Role.RECOMPUTED).tolist():
        into = (graph.edges[:, 1] == expansion.origin[copy]) & ~graph.control & ~is_summed
        count = sum(check_received(received, copy, edge) for edge in np.flatnonzero(into).tolist())
        ours = [
            edge
            for edge in received.into[copy]
            for source in [expansion.problem.graph.edges[edge, 0]]
            if expansion.role[source] <= Role.SLICE
            and not (is_held[source] and expansion.problem.graph.phase[copy] >= Phase.UPDATE)
        ]
        assert len(ours) == count
    pairs = expansion.problem.graph.edges[expansion.role[expansion.problem.graph.edges[:, 0]] <= Role.SLICE]
    cut = pairs[expansion.role[pairs[:, 1]] == Role.SLICE]
    assert len(np.unique(cut[:, 1])) == len(cut)  # each slice is cut from one copy
    readers = [frozenset(pairs[pairs[:, 0] == each, 1].tolist()) for each in cut[:, 1].tolist()]
    assert all(readers)
