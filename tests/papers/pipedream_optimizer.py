"""Reference: PipeDream's optimizer (Narayanan et al. 2019, section 3.1): stages and replicas with the least bottleneck.

A(i, j, m) is the time of the slowest stage, per mini-batch, of a pipeline from state i to state j on m machines:

    A(i, j, m) = min( T(i, j, m), min over k, r of max( A(i, k, m - r), T(k, j, r), transfers ) )
    T(i, j, r) = (seconds + 4 (r - 1) parameter bytes / (bandwidth r)) / r

is the released code's form: replicas exchange gradients in a ring after computing, and a transfer between stages counts
both ways over the links of the later stage, if at all. In the paper's form they exchange while they compute,
T = max(seconds, 4 (r - 1) parameter bytes / (bandwidth r)) / r, and a transfer takes one link, whatever the replicas.
Levels are a hierarchy of machines, the innermost first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats
from tests.papers.pipedream_states import States


@dataclass(frozen=True)
class LinkLevel:
    """Machines, or groups of machines, that are joined by links of one bandwidth."""

    machines: int
    bandwidth: float  # bytes/s


def bottleneck(
    states: States, levels: Sequence[LinkLevel], *, transfers: bool = True, straight: bool = False,
    memory_bytes: float = math.inf, as_in_paper: bool = False,
) -> float:  # fmt: skip
    """Seconds per mini-batch of the slowest stage of the best pipeline.

    Without `transfers` only computing counts; `straight` pipelines have no replicas; with a limit of memory, the
    activations and versions of the parameters that a stage keeps must fit. Raises InputError without a level.
    """
    if not levels or any(level.machines < 1 or not level.bandwidth > 0 for level in levels):
        raise InputError("expected levels of at least one machine each, with a positive bandwidth")
    compute, activation, parameters = (
        _between(totals) for totals in (states.seconds, states.activation_bytes, states.parameter_bytes)
    )
    inside = 1
    for number, level in enumerate(levels):
        is_last = number == len(levels) - 1
        table = _table(
            compute, activation, parameters, states.output_bytes, states.comes_before, level.machines, inside,
            level.bandwidth, is_last, transfers, straight, memory_bytes, as_in_paper,
        )  # fmt: skip
        compute, inside = table[:, :, -1], level.machines
    return float(compute[0, -1])


def _between(totals: Floats) -> Floats:
    """(states + 1, states): from after state i - 1, or the beginning, to state j; NaN where j does not come later."""
    before = np.concatenate([[0.0], totals])
    differences: Floats = totals[None, :] - before[:, None]
    later = np.arange(len(totals))[None, :] >= np.arange(len(before))[:, None]
    return np.where(later, differences, np.nan)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _replicated(seconds: float, exchange: float, replicas: int, as_in_paper: bool) -> float:
    """T: a mini-batch on one of several replicas."""
    return (max(seconds, exchange) if as_in_paper else seconds + exchange) / replicas


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _table(
    compute: Floats, activation: Floats, parameters: Floats, output_bytes: Floats, comes_before: Bools, machines: int,
    inside: int, bandwidth: float, is_last: bool, transfers: bool, straight: bool, memory_bytes: float,
    as_in_paper: bool,
) -> Floats:  # fmt: skip
    """(states + 1, states, machines) A, NaN where there is no such pipeline."""
    begins, ends = compute.shape
    table = np.full((begins, ends, machines), np.nan)
    for i in range(begins):
        for j in range(i, ends):
            for m in range(1 if straight else machines):
                kept = math.ceil((machines - (m + 1)) / (m + 1)) * (activation[i, j] + parameters[i, j])
                if kept > memory_bytes:
                    continue
                exchange = 4 * m * parameters[i, j] / (bandwidth * (m + 1)) / inside
                table[i, j, m] = _replicated(compute[i, j], exchange, m + 1, as_in_paper)
    for i in range(1 if is_last else begins):
        for m in range(1, machines):
            for j in range(i + 1, ends):
                best = table[i, j, m]
                for k in range(ends):
                    if not comes_before[k, j] or (i > 0 and comes_before[k, i - 1]):
                        continue
                    for replicas in range(1, 2 if straight else m + 1):
                        first = table[i, k, m - replicas]
                        last = compute[k + 1, j]
                        if np.isnan(first) or np.isnan(last):
                            continue
                        stage = activation[k + 1, j] + parameters[k + 1, j]
                        kept = math.ceil((machines - (m + 1)) / replicas) * stage
                        if kept > memory_bytes:
                            continue
                        exchange = 4 * (replicas - 1) * parameters[k + 1, j] / (bandwidth * replicas)
                        slowest = max(first, _replicated(last, exchange, replicas, as_in_paper))
                        if transfers and as_in_paper:
                            slowest = max(slowest, 2 * output_bytes[k] / bandwidth)
                        elif transfers:
                            slowest = max(slowest, 2 * output_bytes[k] / (bandwidth * replicas))
                            if j < ends - 1:
                                slowest = max(slowest, 2 * output_bytes[j] / (bandwidth * replicas))
                        if not best <= slowest:  # also where there is none yet
                            best = slowest
                table[i, j, m] = best
    return table
