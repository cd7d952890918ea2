"""Robustness: what a plan takes when ops and transfers take a little longer or shorter than they should.

A plan's step time may depend on the exact order in the queues of links. Then it takes longer as soon as something is
a little late, and would take another time on links without contention: it suits the model rather than a machine. What
the same placement takes first come, first served, shows what the order of a plan is worth for that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from envs.expansion.expanded import Expansion
from envs.orders import order_name
from envs.plans.plan import Plan
from envs.simulation.simulator import LaidOut, Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.runtime import FIFO

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
    runs, for all its micro-batches and replicas; that of an output, or of a message, holds for all its transfers,
    latency included, and all its slices. All plans for one problem meet the same factors, expanded or not; what only
    an expanded plan has, as the steps of an all-reduce, has more. Launches and gaps stay as they are. The order is the
    plan's own, or the problem's rule. Raises InputError for a plan that is not one for this problem, and for noise or
    draws that make no sense.
    """
    if not (0 <= noise < np.inf and draws >= 1):
        raise InputError(f"expected noise >= 0 and at least one draw, got a noise of {noise} and {draws} draws")
    found = _under(problem, plan, noise, draws, seed)
    if order_name(problem, plan.order) == FIFO.name:
        return found
    return replace(found, by_fifo=_under(problem, replace(plan, order=FIFO), noise, draws, seed))


def noisy_steps(simulator: Simulator, placement: Ints, *, noise: float, draws: int, seed: int = 0) -> Floats:
    """(draws,) seconds of a step of one placement, (units,), under noise as `robustness` has it.

    Plans for one problem meet the same factors. Noise far below all differences of times breaks ties at random.
    """
    graph = simulator.problem.graph
    factors = _factors(len(graph) + len(graph.moved_bytes), noise, draws, np.random.default_rng(seed))
    return simulator.noisy_seconds(placement, factors[:, : len(graph)], factors[:, len(graph) :])


def _under(problem: Problem, plan: Plan, noise: float, draws: int, seed: int) -> Robustness:
    """What a plan takes under its own order."""
    laid = LaidOut.of(problem, plan)
    simulator = laid.simulator()
    free_cluster = problem.cluster.with_free_links()
    free = replace(laid, problem=replace(laid.problem, cluster=free_cluster, op_seconds=simulator.costs.op_seconds))
    step_seconds, free_seconds = (float(one.seconds(laid.placement[None])[0]) for one in (simulator, free.simulator()))
    if laid.expansion is None:
        noisy = noisy_steps(simulator, laid.placement, noise=noise, draws=draws, seed=seed)
    else:
        noisy = _noisy_steps_expanded(simulator, laid.expansion, noise, draws, seed)
    return Robustness(step_seconds, float(np.median(noisy)), float(noisy.max()), free_seconds, noise, draws)


def _noisy_steps_expanded(simulator: Simulator, expansion: Expansion, noise: float, draws: int, seed: int) -> Floats:
    """(draws,) seconds of a step of an expanded plan: copies, and slices, have the factors of their origins."""
    given, graph, origin = expansion.given.graph, expansion.problem.graph, expansion.origin
    known, more = len(given) + len(given.moved_bytes), len(graph)
    own = known + np.arange(more)  # of what has no origin, or is no copy of it
    of_ops = np.where(origin >= 0, origin, own)
    of_outputs = np.where(origin >= 0, len(given) + origin, own)
    columns = np.concatenate([of_outputs, _given_messages(expansion, of_outputs)])
    rng = np.random.default_rng(seed)
    factors = np.hstack([_factors(count, noise, draws, rng) for count in (known, more)])
    return simulator.noisy_seconds(expansion.placement, factors[:, of_ops], factors[:, columns])


def _given_messages(expansion: Expansion, otherwise: Ints) -> Ints:
    """(expanded messages,) the number of the given message that each is a copy of, after the given ops and outputs.

    That is the message between the same ops, of several the one that comes as often before; of what is no copy of a
    message it is what there is `otherwise`, (expanded ops,), for its producer.
    """
    given, graph, origin = expansion.given.graph, expansion.problem.graph, expansion.origin.tolist()
    numbers: dict[tuple[int, int], list[int]] = {}
    for number, (producer, consumer) in enumerate(given.edges[given.has_message].tolist(), 2 * len(given)):
        numbers.setdefault((producer, consumer), []).append(number)
    seen: Counter[tuple[int, int]] = Counter()
    found = []
    for producer, consumer in graph.edges[graph.has_message].tolist():
        several = numbers.get((origin[producer], origin[consumer]), [int(otherwise[producer])])
        found.append(several[seen[producer, consumer] % len(several)])
        seen[producer, consumer] += 1
    return np.array(found, np.int64)


def _factors(count: int, noise: float, draws: int, rng: np.random.Generator) -> Floats:
    """(draws, count) factors."""
    factors: Floats = np.exp(noise * rng.standard_normal((draws, count)))
    return factors
