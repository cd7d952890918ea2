"""The simulator against its peers in plain Python, with memory against without, on two threads against one.

And what it takes on captured graphs, under every order of the queues, and in PyTorch's loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from envs.simulation.simulator import Simulator
from graphs.host import Host
from graphs.runtime import IDEAL, runtime_of
from tests.benchmarks.figures import Figure, at_least, at_most, least_seconds, reported
from tests.benchmarks.workloads import GROUPS, captured, metis_placements, placements, problem
from tests.oracle import simpy_oracle
from tests.papers.placeto_simulator import PlacetoSimulator, neighbours

SIZES = (128, 500, 2_000, 10_000, 50_000)
CAPTURED = (
    "bert:bert-base", "resnet:resnet-50", "inception_v3:inception-v3", "rnnlm:rnnlm-2", "gnmt:gnmt-2",
)  # fmt: skip
OPS_PER_CALL = 128_000  # of the simulator; the peers time fewer placements
PEER_OPS = 20_000
SIMPY_OPS = 2_000


def measure(sizes: Sequence[int] = SIZES, graphs: Sequence[str] = CAPTURED) -> Iterator[Figure]:
    """Figures for each size of random graphs, and for each captured graph."""
    for ops in sizes:
        yield from _against_peers(ops)
    yield _on_two_threads()
    for graph in graphs:
        yield from _captured(graph)
        yield from _in_the_loop(graph)


def _against_peers(ops: int) -> Iterator[Figure]:
    """Seconds per placement: the peers' over ours. Placements differ from call to call, unless it says so."""
    case = problem(ops)
    drawn = placements(ops, _plans(ops))
    lists = drawn.tolist()
    few, fewer = max(1, PEER_OPS // ops), max(1, SIMPY_OPS // ops)
    simulator = Simulator(case, order="fifo")
    op_seconds = simulator.costs.op_seconds
    placeto = PlacetoSimulator(op_seconds[:, 0].tolist(), case.graph.output_bytes.tolist(), *neighbours(case.graph))
    per_device = op_seconds.tolist()
    same = np.repeat(drawn[:1], len(drawn), axis=0)
    devices = tuple(replace(each, message_seconds=1e-5) for each in case.cluster.devices)
    held = Simulator(replace(case, cluster=replace(case.cluster, devices=devices)), order="fifo")
    mean = float(op_seconds.mean())
    hosts = [Host.uniform(mean / 20), Host.uniform(2 * mean)]  # the devices are slower, or the host is
    fast, slow = (Simulator(replace(case, runtime=replace(IDEAL, host=host))) for host in hosts)
    rule = Simulator(case)
    placetos, simpys, alone, again, with_memory, with_messages, ordered, by_devices, by_host = least_seconds(
        lambda: [placeto.run(placement) for placement in lists[:few]],
        lambda: [simpy_oracle.simulate(case, per_device, placement) for placement in lists[:fewer]],
        lambda: simulator.seconds(drawn),
        lambda: simulator.seconds(same),
        lambda: simulator.run_batch(drawn),
        lambda: held.seconds(drawn),
        lambda: rule.seconds(drawn),
        lambda: fast.seconds(drawn),
        lambda: slow.seconds(drawn),
        rounds=7 if ops < 10_000 else 3,
    )
    ours = alone / len(drawn)
    yield reported(f"time per op and placement, random graph of {ops:,} ops", ours / ops * 1e9, "ns")
    yield at_least(25, f"Placeto's simulator transcribed / ours, {ops:,} ops", placetos / few / ours)
    yield reported(f"the same, one placement over and over, {ops:,} ops", placetos / few / (again / len(same)))
    yield at_least(200, f"SimPy / ours, {ops:,} ops", simpys / fewer / ours)
    yield at_most(1.5, f"with memory / without, {ops:,} ops", with_memory / alone)
    yield reported(f"where messages hold devices / where they do not, {ops:,} ops", with_messages / alone)
    yield at_most(1.4, f"with a host that is faster than the devices / without, {ops:,} ops", by_devices / ordered)
    yield at_most(1.5, f"with a host that is slower than the devices / without, {ops:,} ops", by_host / ordered)


def _on_two_threads(ops: int = 500, plans: int = 256) -> Figure:
    simulator, drawn = Simulator(problem(ops), order="fifo"), placements(ops, plans)
    one, two = (simulator.run_batch(drawn, threads=threads) for threads in (1, 2))
    same_bits = np.array_equal(one.step_seconds, two.step_seconds) and np.array_equal(one.peak_bytes, two.peak_bytes)
    alone, together = least_seconds(
        lambda: simulator.run_batch(drawn),
        lambda: simulator.run_batch(drawn, threads=2),
        rounds=15,
        clock=time.perf_counter,
    )
    return at_least(1.6, f"one thread / two, {plans} plans of {ops} ops", alone / together if same_bits else 0.0)


def _captured(graph: str) -> Iterator[Figure]:
    """Time per op of a captured graph: placements of two kinds, orders of three."""
    case = captured(graph)
    ops, units = len(case.graph), len(case.units)
    plans = _plans(ops)
    drawn = placements(units, plans)
    fifo, urgent = Simulator(case, order="fifo"), Simulator(case, order="longest_path")
    as_started = np.argsort(np.argsort(fifo.timeline(drawn[0]).start, kind="stable"))
    given = Simulator(case, order=as_started)
    found = metis_placements(case, plans)
    timed = {
        "random placements": lambda: fifo.seconds(drawn),
        "random, with memory": lambda: fifo.run_batch(drawn),
        "METIS's placements": lambda: fifo.seconds(found),
        "random, longest path first": lambda: urgent.seconds(drawn),
        "random, in a given order": lambda: given.seconds(drawn),
        "METIS's, longest path first": lambda: urgent.seconds(found),
    }
    for what, seconds in zip(timed, least_seconds(*timed.values()), strict=True):
        yield reported(
            f"time per op, {graph} in {min(GROUPS, units)} groups, {what}", seconds / plans / ops * 1e9, "ns"
        )


def _in_the_loop(graph: str) -> Iterator[Figure]:
    """Seconds with memory where a host issues PyTorch's order, over those of the ideal machine, on 2 to 8 devices."""
    for devices in (2, 4, 8):
        case = captured(graph, devices)
        drawn = placements(len(case.units), _plans(len(case.graph)), devices)
        loop, ideal = (Simulator(replace(case, runtime=runtime)) for runtime in (runtime_of("parallelize"), IDEAL))
        in_the_loop, ideally = least_seconds(partial(loop.run_batch, drawn), partial(ideal.run_batch, drawn))
        what = f"with memory, in PyTorch's loop / on the ideal machine, {graph} on {devices} devices"
        yield at_most(1.3, what, in_the_loop / ideally)


def _plans(ops: int) -> int:
    """How many placements of a graph of `ops` ops are timed at once."""
    return max(2, min(256, OPS_PER_CALL // ops))
