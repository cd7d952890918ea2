"""The simulator against its peers in plain Python, with memory against without, on two threads against one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envs.simulation.simulator import Simulator
from tests.benchmarks.figures import Figure, at_least, at_most, least_seconds, reported
from tests.benchmarks.workloads import placements, problem
from tests.oracle import simpy_oracle
from tests.papers.placeto_simulator import PlacetoSimulator, neighbours

SIZES = (128, 500, 2_000, 10_000, 50_000)
PLACETO_BOUNDS = (200, 200, 80, 80, 80)
OPS_PER_CALL = 128_000  # of the simulator; the peers time fewer placements
PEER_OPS = 20_000
SIMPY_OPS = 2_000


def measure(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Figures for each size of graph."""
    for ops in sizes:
        yield from _against_peers(ops, dict(zip(SIZES, PLACETO_BOUNDS, strict=True)).get(ops, 80))
    yield _on_two_threads()


def _against_peers(ops: int, bound: float) -> Iterator[Figure]:
    """Seconds per placement: the peers' over ours. Placements differ from call to call, unless it says so."""
    case = problem(ops)
    drawn = placements(ops, max(2, min(256, OPS_PER_CALL // ops)))
    lists = drawn.tolist()
    few, fewer = max(1, PEER_OPS // ops), max(1, SIMPY_OPS // ops)
    simulator = Simulator(case)
    op_seconds = simulator.costs.op_seconds
    placeto = PlacetoSimulator(op_seconds[:, 0].tolist(), case.graph.output_bytes.tolist(), *neighbours(case.graph))
    per_device = op_seconds.tolist()
    same = np.repeat(drawn[:1], len(drawn), axis=0)
    placetos, simpys, alone, again, with_memory = least_seconds(
        lambda: [placeto.run(placement) for placement in lists[:few]],
        lambda: [simpy_oracle.simulate(case, per_device, placement) for placement in lists[:fewer]],
        lambda: simulator.seconds(drawn),
        lambda: simulator.seconds(same),
        lambda: simulator.run_batch(drawn),
        rounds=7 if ops < 10_000 else 3,
    )
    ours = alone / len(drawn)
    yield reported(f"seconds per op and placement, {ops} ops", ours / ops * 1e9, "ns")
    yield at_least(bound, f"Placeto's simulator / ours, {ops} ops", placetos / few / ours)
    yield reported(f"the same, one placement over and over, {ops} ops", placetos / few / (again / len(same)))
    yield at_least(500, f"SimPy / ours, {ops} ops", simpys / fewer / ours)
    yield at_most(2, f"with memory / without, {ops} ops", with_memory / alone)


def _on_two_threads(ops: int = 500, plans: int = 256) -> Figure:
    simulator, drawn = Simulator(problem(ops)), placements(ops, plans)
    one, two = (simulator.run_batch(drawn, threads=threads) for threads in (1, 2))
    same_bits = np.array_equal(one.step_seconds, two.step_seconds) and np.array_equal(one.peak_bytes, two.peak_bytes)
    alone, together = least_seconds(
        lambda: simulator.run_batch(drawn), lambda: simulator.run_batch(drawn, threads=2), rounds=15
    )
    return at_least(1.7, f"one thread / two, {plans} plans of {ops} ops", alone / together if same_bits else 0.0)
