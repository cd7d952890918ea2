"""Starts: the placements that a search begins with, each by a placer that takes no more than seconds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.costs.costs import fastest_device
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.contract.placer import Placer, as_result
from placers.gpipe import GPipe
from placers.heft import Heft
from placers.human_expert import HumanExpert
from placers.m_etf import EarliestTaskFirst
from placers.m_sct import SmallCommunicationTimes
from placers.m_topo import MemoryTopological
from placers.max_load_dp import MaxLoadDP
from placers.metis import Metis
from placers.peft import Peft
from placers.pipedream import PipeDream
from placers.round_robin import RoundRobin
from placers.single_device import SingleDevice

# In the order in which they are worth a simulation where there are few. Of random placements there are enough.
STARTS: tuple[Placer, ...] = (
    Heft(), HumanExpert(), SingleDevice(), MaxLoadDP(ideals=0), Peft(), EarliestTaskFirst(), SmallCommunicationTimes(),
    PipeDream(), Metis(), GPipe(), MemoryTopological(), RoundRobin(),
)  # fmt: skip
SHARE = 0.004  # of a search's budget that each placer may spend on simulations of its own
MOST_SAMPLES = 64  # of a learned placer's policy that a start is chosen from


class Starts(NamedTuple):
    """Where a search begins."""

    placements: Ints  # (starts, units)
    spent: int  # simulations that finding them took
    notes: tuple[str, ...]  # which placers were left out, and why


def starts(problem: Problem, budget: int, seed: int, learned: Placer | None = None) -> Starts:
    """Placements for a search with a number of simulations.

    There are no more of them than there are simulations left, but always one. That of a learned placer comes first: the
    best of some samples, or its greedy placement where the budget is too small for a choice. A placer that refuses the
    problem, or fails, is left out; if all do, everything is on one device.
    """
    found: list[Ints] = []
    notes: list[str] = []
    spent = 0
    for placer in STARTS if learned is None else (learned, *STARTS):
        if len(found) == max(budget, 1):
            break
        allowed = _samples(budget) if placer is learned else int(SHARE * budget)
        try:
            result = as_result(placer.place(problem, seed=seed, budget=allowed), placer.name, seed)
        except Exception as error:  # whatever it is, the others may do
            notes.append(f"start {placer.name} was left out: {_reason(error)}")
            continue
        spent += result.simulations
        found.append(result.plan.per_unit(problem))
    return Starts(np.array(found or [_together(problem)]), spent, tuple(notes))


def _reason(error: Exception) -> str:
    is_sentence = isinstance(error, InputError | DoesNotFitError)
    return str(error) if is_sentence else f"{type(error).__name__}: {error}".removesuffix(": ")


def _together(problem: Problem) -> Ints:
    """(units,) all on the fastest device, as far as the graph allows that."""
    return problem.made_allowed(np.full(len(problem.units), fastest_device(problem)))


def _samples(budget: int) -> int:
    """8 for a budget of 16, 20 for 100, 63 for 1,000; tuned on eight families, five of them new to the policy."""
    return min(int(2 * budget**0.5), budget // 2, MOST_SAMPLES)
