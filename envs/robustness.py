"""Robustness: what a plan takes when ops and transfers take a little longer or shorter than they should.

A plan's step time may depend on the exact order in the queues of links. Then it takes longer as soon as something is
a little late, and would take another time on links without contention: it suits the model rather than a machine. What
the same placement takes first come, first served, shows what the order of a plan is worth for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from envs.orders import order_name
from envs.plan import Plan
from envs.simulation.simulator import SINGLE, Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import FIFO, Problem

NOISE = 0.02
DRAWS = 32


@dataclass(frozen=True)
class Robustness:
    """What a plan takes when things take other times than they should."""

    step_seconds: float  # as simulated
    median_seconds: float  # over the draws
    worst_seconds: float  # over the draws
    free_seconds: float  # without noise, on links without contention
    noise: float  # the standard deviation of the logarithm of each factor
    draws: int
    by_fifo: Robustness | None = None  # of the same placement, first come, first served; None if the plan is run so


def robustness(problem: Problem, plan: Plan, *, noise: float = NOISE, draws: int = DRAWS, seed: int = 0) -> Robustness:
    """What a plan takes when each op and each transfer takes its time multiplied by a factor of its own.

    The factors are lognormal with a median of 1, independent, and the same for the same seed. An op's holds wherever it
    runs; that of an output, or of a message, holds for all its transfers, latency included. Launches and gaps stay as
    they are. The order is the plan's own, or the problem's rule. Raises InputError for a plan that is not one for this
    problem, and for noise or draws that make no sense.
    """
    if not (0 <= noise < np.inf and draws >= 1):
        raise InputError(f"expected noise >= 0 and at least one draw, got a noise of {noise} and {draws} draws")
    plan.check_single(problem, SINGLE)
    found = _under(problem, plan, noise, draws, seed)
    if order_name(problem, plan.order) == FIFO:
        return found
    return replace(found, by_fifo=_under(problem, replace(plan, order=FIFO), noise, draws, seed))


def noisy_steps(simulator: Simulator, placement: Ints, *, noise: float, draws: int, seed: int = 0) -> Floats:
    """(draws,) seconds of a step of one placement, (units,), under noise as `robustness` has it.

    Plans for one problem meet the same factors. Noise far below all differences of times breaks ties at random.
    """
    rng = np.random.default_rng(seed)
    graph = simulator.problem.graph
    of_ops, of_outputs = len(graph), len(graph.moved_bytes)
    factors = np.exp(noise * rng.standard_normal((draws, of_ops + of_outputs)))
    return simulator.noisy_seconds(placement, factors[:, :of_ops], factors[:, of_ops:])


def _under(problem: Problem, plan: Plan, noise: float, draws: int, seed: int) -> Robustness:
    """What a plan takes under its own order."""
    simulator = Simulator(problem, order=plan.order)
    placement = plan.per_unit(problem)
    free = replace(problem, cluster=problem.cluster.with_free_links(), op_seconds=simulator.costs.op_seconds)
    freed = Simulator(free, order=plan.order)
    step_seconds, free_seconds = (float(one.seconds(placement[None])[0]) for one in (simulator, freed))
    noisy = noisy_steps(simulator, placement, noise=noise, draws=draws, seed=seed)
    return Robustness(step_seconds, float(np.median(noisy)), float(noisy.max()), free_seconds, noise, draws)
