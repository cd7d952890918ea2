"""Steps of a local search in one compiled loop: change, time, keep or take back (Metropolis et al. 1953).

A step changes the placement or the order. Placements come first: a fine order is soon out of date where much is moved,
so the share of steps that change the order grows with the cube of what is over of the search.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import Blueprint, Indices, Records
from envs.simulation.compiled import compiled_with_generator, inlined
from envs.simulation.engine import time_placements
from envs.simulation.memory import follow_memory
from envs.simulation.moved_weights import MovedWeights, moving_seconds
from envs.simulation.run import Run
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.search.all_on_one import NOT_ALONE, only_device
from placers.search.critical_units import FROM_UNITS, note_critical_units
from placers.search.evaluations import log_seconds, overflow
from placers.search.idling import BusyTimes, add_up, allow_idling, follow_move, keep_move
from placers.search.known import Known, decides, key_after, key_of, key_of_order, recalled, remember
from placers.search.moves import MoveTables, level_at, move, take_back
from placers.search.order_moves import OrderTables, move_order, take_back_order

STATE = np.dtype(
    [
        ("energy", np.float64),  # of the placement
        ("least_energy", np.float64),  # of the best one
        ("simulations", np.int64),  # so far
        ("in_vain", np.int64),  # of these, how many since the placement got better
        ("better", np.int64),  # entries of the curve
        ("order_key", np.uint64),  # of the priorities
    ]
)
ENTRY = np.dtype([("simulations", np.int64), ("seconds", np.float64)])


class CoolingSchedule(NamedTuple):
    """Which changes are kept, and for how long they are tried."""

    hot: float = 0.0  # first temperature; 0 if a change is kept only where it is no worse
    cold: float = 0.0  # last temperature
    budget: int = 1  # simulations from its first to its last
    elapsed: float = 0.0  # the share of its seconds that is over
    patience: int = 2**62  # simulations in vain after which it stops
    reorder: float = 0.0  # the share of the last steps that change the order
    begun: int = 0  # simulations of the search before its first


class StepTables(NamedTuple):
    """What moves read and write, of placements and of orders, and what a placement moves from where the model runs."""

    moves: MoveTables
    orders: OrderTables
    moved: MovedWeights


class Walk(NamedTuple):
    """The state of a search between two steps, and buffers."""

    state: Records  # (1,)
    placement: Indices  # (1, units)
    priorities: Floats  # (ops,) of the placement; those of a problem under fifo are not read
    best: Indices  # (units,)
    best_priorities: Floats  # (ops,)
    curve: Records  # (steps,) each better placement that fits
    memory_bytes: Floats  # (devices,) of the cluster
    seconds: Floats  # (1,) scratch
    peak_bytes: Floats  # (1, devices) scratch
    no_peaks: Floats  # (0, devices), for timing without memory

    @classmethod
    def of(cls, problem: Problem, placement: Ints, priorities: Floats, steps: int) -> Walk:
        """A search at a placement, (units,), and priorities, (ops,), with room for `steps` steps."""
        devices = len(problem.cluster)
        return cls(
            np.zeros(1, STATE), placement[None].astype(np.uint32), priorities.copy(),
            placement.astype(np.uint32), priorities.copy(), np.zeros(steps, ENTRY),
            problem.cluster.memory_bytes.copy(), np.zeros(1), np.zeros((1, devices)), np.zeros((0, devices)),
        )  # fmt: skip


@inlined
def progress(schedule: CoolingSchedule, simulations: int) -> float:
    """What is over of a schedule, from 0 to 1: of its simulations or of its time, whichever is more."""
    return min(max((simulations - schedule.begun) / schedule.budget, schedule.elapsed), 1.0)


@inlined
def temperature(schedule: CoolingSchedule, simulations: int) -> float:
    """It falls geometrically."""
    if schedule.hot == 0.0:
        return 0.0
    return float(schedule.hot * (schedule.cold / schedule.hot) ** progress(schedule, simulations))


@inlined
def share_of_order(schedule: CoolingSchedule, simulations: int) -> float:
    """The share of steps that change the order, at the moment."""
    return float(schedule.reorder * progress(schedule, simulations) ** 3)


@compiled_with_generator
def take_steps(
    blueprint: Blueprint, run: Run, tables: StepTables, work: BusyTimes, known: Known, schedule: CoolingSchedule,
    walk: Walk, generator: np.random.Generator, steps: int,
) -> None:  # fmt: skip
    """Take some steps, of one simulation each, or fewer if patience is over before.

    Most changes of a good plan are too slow whatever memory they take: their simulations are given up as soon as that
    is known, and memory is followed in the others alone. A placement that was timed lately under the same order is not
    timed again, but counts as a simulation. A changed order that takes exactly as long as the one before is taken back,
    which saves following the memory of very many.

    The blueprint has the priorities of the search in the meantime, and its own before and after.
    """
    state, placement, ops, moves, orders = walk.state[0], walk.placement[0], blueprint.ops, tables.moves, tables.orders
    state.better = 0
    _swap_priorities(ops, walk.priorities)
    add_up(work, placement)
    key = key_of(known, placement) ^ state.order_key
    for _ in range(steps):
        if state.in_vain >= schedule.patience:
            break
        # Metropolis keeps a rise r with probability exp(-r / warmth): that of an exponential variable above r / warmth.
        ceiling, changed, reordered = state.energy, 0, 0
        if schedule.reorder > 0.0 and generator.random() < share_of_order(schedule, state.simulations):
            reordered = move_order(orders, ops, generator)
        else:
            changed = move(moves, placement, level_at(moves, progress(schedule, state.simulations)), generator)
        warmth = temperature(schedule, state.simulations)
        if warmth > 0.0:
            ceiling += warmth * generator.standard_exponential()
        follow_move(work, moves, placement, changed)
        proposed = key_after(known, key, moves, placement, changed)
        moving = moving_seconds(tables.moved, placement)
        is_timed = _time(blueprint, run, work, known, walk, proposed, reordered, math.exp(ceiling) - moving)
        state.simulations += 1
        found, penalty = log_seconds(walk.seconds[0] + moving), 0.0
        if reordered > 0 and found == state.energy:  # an order that changes nothing
            found = np.inf
        if found <= ceiling:
            _note_peaks(blueprint, run, known, walk, is_timed)
            penalty = overflow(walk.peak_bytes[0], walk.memory_bytes)
            found += penalty
        state.in_vain = 0 if found < state.energy else state.in_vain + 1
        if found > ceiling:
            take_back(moves, placement, changed)
            take_back_order(orders, ops, reordered)
            continue
        keep_move(work)
        if is_timed and len(placement) > FROM_UNITS:
            note_critical_units(blueprint, run, moves.allowed, moves.critical)
        key = proposed
        if reordered > 0:
            key ^= state.order_key
            state.order_key = key_of_order(state.simulations)
            key ^= state.order_key
        state.energy = found
        if found < state.least_energy:
            _note_best(walk, ops, found, penalty, moving)
    _swap_priorities(ops, walk.priorities)
    run.may_idle[:] = np.inf


@inlined
def _time(
    blueprint: Blueprint, run: Run, work: BusyTimes, known: Known, walk: Walk, key: np.uint64, reordered: int,
    limit: float,
) -> bool:  # fmt: skip
    """Write the seconds of what a move made, or infinity if they are found to be above a limit.

    Returns whether the run is of it.
    """
    walk.seconds[0] = np.inf
    if not allow_idling(work, limit, run.may_idle):
        return False
    device = only_device(known.alone, walk.placement[0])
    if device != NOT_ALONE:
        walk.seconds[0] = known.alone.seconds[device]
        return False
    if reordered == 0 and decides(known, key, limit):
        walk.seconds[0] = recalled(known, key)
        return False
    time_placements(blueprint, walk.placement, run, walk.seconds, walk.no_peaks)
    if reordered == 0:
        remember(known, key, walk.seconds[0], limit)
    return True


@inlined
def _note_peaks(blueprint: Blueprint, run: Run, known: Known, walk: Walk, is_timed: bool) -> None:
    """Write the memory of a placement whose seconds are known."""
    device = only_device(known.alone, walk.placement[0])
    if device != NOT_ALONE:
        for each in range(len(walk.memory_bytes)):
            walk.peak_bytes[0, each] = known.alone.peak_bytes[device, each]
    elif is_timed:
        follow_memory(blueprint, walk.placement[0], run, walk.peak_bytes[0])
    else:
        time_placements(blueprint, walk.placement, run, walk.seconds, walk.peak_bytes)


@inlined
def _note_best(walk: Walk, ops: Records, energy: float, penalty: float, moving: float) -> None:
    """Keep the placement and its order, whose energy is less than ever; the curve shows what fits."""
    state = walk.state[0]
    state.least_energy = energy
    for unit in range(len(walk.best)):
        walk.best[unit] = walk.placement[0, unit]
    for op in range(len(ops)):
        walk.best_priorities[op] = ops[op].priority
    if penalty == 0.0:
        walk.curve[state.better].simulations = state.simulations
        walk.curve[state.better].seconds = walk.seconds[0] + moving
        state.better += 1


@inlined
def _swap_priorities(ops: Records, priorities: Floats) -> None:
    for op in range(len(ops)):
        ops[op].priority, priorities[op] = priorities[op], ops[op].priority
