"""Starts: the placements that a search begins with, each by a placer that takes no more than seconds."""

from __future__ import annotations

import numpy as np

from graphs.op_graph import Ints
from graphs.problem import Problem
from placers import Placer
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


def starts(problem: Problem, budget: int, seed: int, learned: Placer | None = None) -> tuple[Ints, int]:
    """(starts, units) placements for a search with so many simulations, and how many were spent on finding them.

    There are no more of them than there are simulations left, but always one. That of a learned placer comes first: the
    best of some samples, or its greedy placement where the budget is too small for a choice.
    """
    found: list[Ints] = []
    spent = 0
    placers = STARTS if learned is None else (learned, *STARTS)
    for placer in placers[: max(budget, 1)]:
        allowed = _samples(budget) if placer is learned else int(SHARE * budget)
        plan = placer.place(problem, seed=seed, budget=allowed)
        spent += plan.simulations
        found.append(plan.per_unit(problem))
    return np.array(found), spent


def _samples(budget: int) -> int:
    """8 for a budget of 16, 20 for 100, 63 for 1,000; tuned on eight families, five of them new to the policy."""
    return min(int(2 * budget**0.5), budget // 2, MOST_SAMPLES)
