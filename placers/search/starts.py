"""Starts: the placements that a search begins with, each by a placer that takes a few seconds at most."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from envs.costs.costs import costs_of
from graphs.foundation import by_name
from graphs.foundation.errors import DoesNotFitError, InputError, reason
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.contract.placer import Placer, as_result

# In the order in which they are worth a simulation where there are few. None is random: searches draw enough of those.
STARTS = (
    "heft", "human_expert", "single_device", "max_load_dp:ideals=0", "peft", "m_etf", "m_sct", "pipedream", "metis",
    "gpipe", "m_topo", "round_robin",
)  # fmt: skip
SHARE = 0.004  # of a search's budget that each placer may spend on simulations of its own
MOST_SAMPLES = 64  # of a learned placer's policy that a start is chosen from


class Starts(NamedTuple):
    """Where a search begins."""

    placements: Ints  # (starts, units)
    spent: int  # simulations that finding them took
    notes: tuple[str, ...]  # which placers were left out, and why


@cache
def cheap_placers() -> tuple[Placer, ...]:
    """The placers of STARTS, built once a search asks for them: no room imports them."""
    return tuple(by_name.build("placers", spec) for spec in STARTS)


def starts(problem: Problem, budget: int, seed: int, learned: Placer | None = None) -> Starts:
    """Placements for a search with a budget of simulations: at most as many, but always one.

    That of a learned placer comes first: the best of some samples, or its greedy placement where the budget is too
    small for a choice. A placer that refuses the problem, or fails, is left out; if all do, everything is on the
    fastest device, as far as the graph allows that.
    """
    found: list[Ints] = []
    notes: list[str] = []
    spent = 0
    # 8 samples for a budget of 16, 20 for 100, 63 for 1,000; tuned on eight families, five of them new to the policy
    samples = min(int(2 * budget**0.5), budget // 2, MOST_SAMPLES)
    for placer in cheap_placers() if learned is None else (learned, *cheap_placers()):
        if len(found) == max(budget, 1):
            break
        allowed = samples if placer is learned else int(SHARE * budget)
        try:
            result = as_result(placer.place(problem, seed=seed, budget=allowed), placer.name, seed)
        except Exception as error:  # whatever it is, the others may do
            said = str(error) if isinstance(error, InputError | DoesNotFitError) else reason(error)
            notes.append(f"start {placer.name} was left out: {said}")
            continue
        spent += result.simulations
        found.append(result.plan.per_unit(problem))
    if not found:
        fastest = int(costs_of(problem).op_seconds.sum(axis=0).argmin())
        found.append(problem.made_allowed(np.full(len(problem.units), fastest)))
    return Starts(np.array(found), spent, tuple(notes))
