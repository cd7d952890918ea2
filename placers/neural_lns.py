"""Large-neighbourhood search led by a policy: a part of the best plans is freed and placed again, as the policy says.

Large-neighbourhood search (Shaw 1998) with annealing's rule (Ropke and Pisinger 2006) and both of its choices learned,
as in "Neural Deconstruction Search" (Hottung et al. 2025): a network chooses where a plan is freed, 8 to 64 units at a
time, and the policy's decoder places these again, with all others where they are. A policy does this well if it was
trained to (`ppo.repairs` of a recipe); any that places unit by unit can.

The search begins where `annealing:policy=...` begins: at the best of the policy's samples and the cheap placers' plans.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import REORDER, Annealing
from placers.learned.lookup import placer_of
from placers.search.levels import levels_of
from placers.search.search import SearchPlacer
from placers.search.starts import starts

if TYPE_CHECKING:
    from placers.learned.learned_placer import LearnedPlacer
    from placers.learned.repair.search import RepairSearch

LEARNED = True  # is compared with the classical placers, not as one of them


@dataclass(frozen=True)
class NeuralLns(SearchPlacer):
    """Parts of a plan, placed again by a policy."""

    policy: str = "default"
    """Who frees and places units: `default`, a trained policy's folder, or a spec without knobs; of `sequential`."""
    moves: float = 0.5
    """Share of the simulations that annealing's moves take: of single units, and of the order. 1 is annealing."""
    hot: float = Annealing.hot
    """First temperature: the relative slowdown that is accepted with probability 1/e."""
    cold: float = Annealing.cold
    """Last temperature."""
    order: bool = True
    """Whether moves change the order, too. Under `fifo` there are no priorities to change."""
    seconds: float = float("inf")
    """A limit of processor seconds, in addition to that of simulations."""
    file: str = ""
    """Where to save the search when it ends or is stopped, and to resume it from."""

    def __post_init__(self) -> None:
        if not 0 < self.cold <= self.hot:
            raise InputError(f"neural_lns: expected 0 < cold <= hot, got cold={self.cold}, hot={self.hot}")
        if not 0 <= self.moves <= 1:
            raise InputError(f"neural_lns: moves is {self.moves}; expected a share from 0 to 1")
        super().__post_init__()
        _ = self.learned  # refused here if it does not exist, not after a model was captured for it

    @cached_property
    def learned(self) -> LearnedPlacer:
        """What `policy` names. Raises InputError for a policy that cannot repair plans."""
        # Imported late: torch, for names need none
        from placers.contract.abilities import Repairs
        from placers.learned.learned_placer import LearnedPlacer

        placer = placer_of(self.policy)
        if not isinstance(placer, LearnedPlacer) or not isinstance(placer.policy, Repairs):
            raise InputError(
                f"neural_lns: policy {self.policy!r} cannot repair plans; give 'default', or the folder of a trained "
                "policy of 'sequential'"
            )
        return placer

    def begin(self, problem: Problem, seed: int, budget: int) -> RepairSearch:
        """The first simulations are annealing's."""
        # Imported late: torch, for names need none
        from placers.contract.abilities import Repairs
        from placers.learned.repair.search import RepairSearch

        levels = levels_of(problem)
        given = starts(levels, budget, seed, self.learned, self.seconds)
        search = RepairSearch(levels, self, seed, budget, given, reorder=REORDER)
        policy = self.learned.policy_for(problem)
        assert isinstance(policy, Repairs)
        search.repairs = policy.repairer(problem, threads=os.cpu_count() or 1)
        return search


build = NeuralLns
