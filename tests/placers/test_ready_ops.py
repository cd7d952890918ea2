"""The pair of an op and a device that starts first is the one that a comparison of all pairs finds."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envs.simulation.held_memory import HeldMemory, Room
from graphs.cluster import Cluster, Device
from graphs.problem import Problem
from placers.m_etf import EarliestTaskFirst
from placers.m_sct import SmallCommunicationTimes, favourite_edges
from placers.solvers.list_scheduling import ListSchedule, SchedulingTasks
from tests.oracle.plain_earliest_task import PlainEarliestTask
from tests.oracle.toys import random_graph


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Ops that take no time among others, some tied, some bound to devices that may be unlike and short of memory."""
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    ops, devices = draw(st.integers(1, 24)), draw(st.integers(1, 4))
    kinds = [Device(f"gpu:{i}", "gpu", float(generator.integers(1, 3)), 1.0, draw(MEMORY)) for i in range(devices)]
    links = np.arange(devices**2).reshape(devices, devices)
    latency, bandwidth = draw(st.sampled_from([0.0, 0.5])), np.ones((devices, devices))
    graph = random_graph(ops, int(generator.integers(10**6)))
    if draw(st.booleans()):
        graph = replace(graph, group=generator.integers(-1, 6, ops))
    elif draw(st.booleans()):
        names = [(), *((device.name,) for device in kinds)]
        graph = replace(graph, devices=tuple(names[i] for i in generator.integers(0, len(names), ops)))
    return Problem(graph, Cluster("unlike", tuple(kinds), np.full_like(bandwidth, latency), bandwidth, links))


MEMORY = st.sampled_from([20.0, 40.0, 1e6])  # bytes: a weight has one to three, and an op's output none to three


@given(problems(), st.sampled_from([1.0, 0.6]))
def test_etf_and_sct_plan_as_a_loop_over_all_pairs_of_a_ready_op_and_a_device(problem: Problem, share: float) -> None:
    tasks, held = SchedulingTasks.of(problem), HeldMemory.of(problem)
    transfer = tasks.mean_transfers()
    chosen = favourite_edges(problem.graph, tasks.seconds.mean(axis=1), transfer)
    pairs = zip(problem.graph.edges[chosen].tolist(), transfer[chosen].tolist(), strict=True)
    favourites = {parent: (child, patience) for (parent, child), patience in pairs}

    def expect(planned: ListSchedule, favourites: dict[int, tuple[int, float]]) -> None:
        plain = PlainEarliestTask(tasks, Room(held, share), favourites).run()
        for found, expected in zip((planned.placement, planned.start, planned.finish), plain, strict=True):
            assert found.tolist() == expected.tolist()

    expect(EarliestTaskFirst().schedule(tasks, Room(held, share)), {})
    expect(SmallCommunicationTimes().schedule(tasks, Room(held, share)), favourites)
