"""Micro-batches: the numbers of them into which a step can be divided."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from envs.simulation.held_memory import HeldMemory
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators

FEW_MICRO_BATCHES = 64  # that are tried at first, and all where it is not known how many samples a step has; ours


@lru_cache(maxsize=256)
def numbers_of(samples: int, replicas: int = 1) -> tuple[int, ...]:
    """Those that divide the samples of a step on so many replicas, in ascending order.

    Powers of two where it is not known how many samples there are, which is 0.
    """
    if not samples:
        return tuple(1 << power for power in range(FEW_MICRO_BATCHES.bit_length()))
    each, rest = divmod(samples, replicas)
    if rest:
        return ()
    small = [count for count in range(1, math.isqrt(each) + 1) if each % count == 0]
    return tuple(sorted({*small, *(each // count for count in small)}))


def doubled(numbers: Sequence[int], above: int) -> Iterator[int]:
    """Of the numbers, ascending, those above one of them, each about twice the one before, and the last."""
    while above < numbers[-1]:
        twice = [count for count in numbers if above < count <= 2 * above]
        above = max(twice) if twice else min(count for count in numbers if count > above)
        yield above


def least_micro_batches(problem: Problem, parts: int) -> float:
    """Micro-batches with fewer of which what waits for the backward pass would not fit alone, divided into `parts`."""
    state = float(problem.weight_state_bytes.sum())
    held = HeldMemory.of(problem).on_devices(np.zeros(problem.graph.num_units, np.int64))[0]
    limit = float(problem.cluster.memory_bytes[list(accelerators(problem.cluster))].min())
    return float(held - state) / (parts * max(limit, 1.0))
