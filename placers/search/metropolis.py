"""Steps of a local search in one compiled loop: change, time, keep or take back (Metropolis et al. 1953)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Blueprint, Indices, Records
from envs.simulation.compiled import compiled_with_generator, inlined
from envs.simulation.engine import time_placements
from envs.simulation.run import Run
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.search.evaluations import log_seconds, overflow
from placers.search.idling import Work, add_up, allow_idling, follow_move, keep_move
from placers.search.known import Known, decides, key_after, key_of, recalled, remember
from placers.search.moves import MoveTables, move, take_back

STATE = np.dtype(
    [
        ("energy", np.float64),  # of the placement
        ("least_energy", np.float64),  # of the best one
        ("simulations", np.int64),  # so far
        ("in_vain", np.int64),  # of these, how many since the placement got better
        ("better", np.int64),  # entries of the curve
    ]
)
ENTRY = np.dtype([("simulations", np.int64), ("seconds", np.float64)])


class Schedule(NamedTuple):
    """Which changes are kept, and for how long they are tried."""

    hot: float = 0.0  # first temperature; 0 if a change is kept only where it is no worse
    cold: float = 0.0  # last temperature
    budget: int = 1  # simulations at which the search ends
    elapsed: float = 0.0  # the share of its seconds that is over
    patience: int = 2**62  # simulations in vain after which it stops


class Walk(NamedTuple):
    """The state of a search between two steps, and buffers."""

    state: Records  # (1,)
    placement: Indices  # (1, units)
    best: Indices  # (units,)
    curve: Records  # (steps,) each better placement that fits
    memory_bytes: Floats  # (devices,) of the cluster
    seconds: Floats  # (1,) scratch
    peak_bytes: Floats  # (1, devices) scratch
    no_peaks: Floats  # (0, devices), for timing without memory

    @classmethod
    def of(cls, problem: Problem, placement: Ints, steps: int) -> Walk:
        """A search at a placement, (units,), with room for `steps` steps."""
        devices = len(problem.cluster)
        return cls(
            np.zeros(1, STATE), placement[None].astype(np.uint32), placement.astype(np.uint32), np.zeros(steps, ENTRY),
            problem.cluster.memory_bytes.copy(), np.zeros(1), np.zeros((1, devices)), np.zeros((0, devices)),
        )  # fmt: skip


@inlined
def temperature(schedule: Schedule, simulations: int) -> float:
    """It falls geometrically, with the simulations or with time, whichever is nearer to its end."""
    if schedule.hot == 0.0:
        return 0.0
    progress = max(simulations / schedule.budget, schedule.elapsed)
    return float(schedule.hot * (schedule.cold / schedule.hot) ** progress)


@compiled_with_generator
def take_steps(
    blueprint: Blueprint, run: Run, tables: MoveTables, work: Work, known: Known, schedule: Schedule, walk: Walk,
    generator: np.random.Generator, steps: int,
) -> None:  # fmt: skip
    """Take some steps, of one simulation each, or fewer if patience is over before.

    Most changes of a good placement are too slow to be kept whatever memory they take, and their simulations are given
    up as soon as that is known. Only the others are timed a second time, with memory. A placement that was timed lately
    is not timed again, but counts as a simulation.
    """
    state, placement = walk.state[0], walk.placement[0]
    state.better = 0
    add_up(work, placement)
    key = key_of(known, placement)
    for _ in range(steps):
        if state.in_vain >= schedule.patience:
            break
        ceiling = state.energy
        changed = move(tables, placement, generator)
        warmth = temperature(schedule, state.simulations)
        if warmth > 0.0:
            ceiling += warmth * generator.standard_exponential()
        follow_move(work, tables, placement, changed)
        proposed = key_after(known, key, tables, placement, changed)
        limit = math.exp(ceiling)
        walk.seconds[0] = np.inf
        if allow_idling(work, limit, run.may_idle):
            if decides(known, proposed, limit):
                walk.seconds[0] = recalled(known, proposed)
            else:
                time_placements(blueprint, walk.placement, run, walk.seconds, walk.no_peaks)
                remember(known, proposed, walk.seconds[0], limit)
        state.simulations += 1
        found, penalty = log_seconds(walk.seconds[0]), 0.0
        if found <= ceiling:
            time_placements(blueprint, walk.placement, run, walk.seconds, walk.peak_bytes)
            penalty = overflow(walk.peak_bytes[0], walk.memory_bytes)
            found += penalty
        if found < state.energy:
            state.in_vain = 0
        else:
            state.in_vain += 1
        if found > ceiling:
            take_back(tables, placement, changed)
            continue
        keep_move(work)
        key = proposed
        state.energy = found
        if found < state.least_energy:
            state.least_energy = found
            for unit in range(len(placement)):
                walk.best[unit] = placement[unit]
            if penalty == 0.0:
                walk.curve[state.better].simulations = state.simulations
                walk.curve[state.better].seconds = walk.seconds[0]
                state.better += 1
    for device in range(len(run.may_idle)):
        run.may_idle[device] = np.inf
