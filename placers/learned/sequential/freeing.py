"""Which units of a plan are freed, to be placed again: a unit that a network chooses, and what is near it.

Large-neighbourhood search (Shaw 1998) takes a part of a solution out and puts it back better. What to take out can be
learned (Hottung et al. 2025, "Neural Deconstruction Search"). Here one decision is learned, the first unit; the region
grows from it at random, over links and to what runs right before or after on the same device or on any. So the decision
has a probability as simple as that of a device, and the region stays connected, in the graph or in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from envs.simulation.compiled import compiled
from graphs.op_graph import Bools, Floats, Ints
from placers.contract.current_plan import CurrentPlan, PlanFeature
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import ALL_DECIDED

FEWEST, MOST = 8, 64  # units that are freed at a time
DRAWS = 4  # random numbers for each of them: some neighbours are drawn twice, and only counted once
CRITICAL_FIRST = 2.0  # initial weight of how critical a unit is
MASKED_SCORE = -1e9  # of units that are no choice


class FreedUnits(NamedTuple):
    """Several choices of units of one problem."""

    seeds: Ints  # (choices,) the first unit of each
    kept: Bools  # (choices, units) all others


@dataclass(frozen=True, eq=False)
class Freed:
    """What was freed in several samples of several problems; nothing where seeds are -1, and all was decided there."""

    kept: Tensor  # (problems, samples, units) bool
    seeds: Tensor  # (problems, samples) the first freed unit, or -1
    plans: Tensor  # (problems, units, plan features) of the plan whose units these are

    @property
    def repaired(self) -> Tensor:
        """(problems,) bool: those whose plans were repaired."""
        return (self.seeds >= 0).any(1)

    def cat(self, other: Freed) -> Freed:
        """The samples of both; they are of the same plans, or the others of none."""
        return Freed(torch.cat([self.kept, other.kept], 1), torch.cat([self.seeds, other.seeds], 1), self.plans)

    def with_more(self, samples: int) -> Freed:
        """With further samples that decide about all units."""
        problems, _, units = self.kept.shape
        kept = self.kept.new_zeros(problems, samples, units)
        return self.cat(Freed(kept, self.seeds.new_full((problems, samples), -1), self.plans))


def kept_of(freed: Freed | None, problem: int, units: int) -> Bools:
    """(samples, units) what is kept in roll-outs of a problem of `units` units; empty where all units are decided."""
    if freed is None or not freed.repaired[problem]:
        return ALL_DECIDED
    return np.ascontiguousarray(freed.kept[problem, :, :units].numpy())


class UnitChoice(nn.Module):
    """Rates every unit of a plan: how much there is to gain if a region around it is placed again."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(len(PlanFeature), hidden)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.skip = nn.Linear(len(PlanFeature), 1, bias=False)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.skip.weight)
        with torch.no_grad():
            self.skip.weight[0, PlanFeature.CRITICAL] = CRITICAL_FIRST

    def forward(self, states: Tensor, plans: Tensor) -> Tensor:
        """(..., units) scores, from (..., units, hidden) states of units and (..., units, plan features)."""
        scores: Tensor = self.out(torch.relu(states + self.first(plans))) + self.skip(plans)
        return scores.squeeze(-1)

    def decisions(self, states: Tensor, freed: Freed, units: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities, (problems, samples), and entropy, (problems,), of the chosen first units.

        `units` is (problems, units), False where padded.
        """
        logits = self(states, freed.plans).masked_fill(~units, MASKED_SCORE)
        table = logits.log_softmax(-1)
        chosen = table.gather(1, freed.seeds.clamp_min(0)) * (freed.seeds >= 0)
        return chosen, -(table.exp() * table).sum(-1) * freed.repaired


@torch.no_grad()
def scores_of(choice: UnitChoice | None, states: Tensor, plan: CurrentPlan) -> Floats:
    """(units,) how much each unit of a plan calls for a change, by (units or more, hidden) states of the units.

    Without a network, what an untrained one says: critical units first.
    """
    if choice is None:
        return CRITICAL_FIRST * plan.features[:, PlanFeature.CRITICAL].astype(np.float64)
    scores: Floats = choice(states[: len(plan.placement)], torch.from_numpy(plan.features)).double().numpy()
    return scores


def free_of_plans(
    choice: UnitChoice | None, states: Tensor, layouts: Sequence[RolloutLayout], plans: Sequence[CurrentPlan | None],
    samples: int, generator: torch.Generator,
) -> Freed | None:  # fmt: skip
    """What each sample frees of the plans of several problems, whose states are (problems, units, hidden), if any."""
    if not any(plans):
        return None
    problems, units, _ = states.shape
    seeds, kept = torch.full((problems, samples), -1), torch.zeros(problems, samples, units, dtype=torch.bool)
    features = torch.zeros(problems, units, len(PlanFeature))
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    for i, (layout, plan) in enumerate(zip(layouts, plans, strict=True)):
        if plan is not None:
            drawn = free_some(layout, plan, scores_of(choice, states[i], plan), samples, rng)
            own = len(plan.placement)
            seeds[i], kept[i, :, :own] = torch.from_numpy(drawn.seeds), torch.from_numpy(drawn.kept)
            features[i, :own] = torch.from_numpy(plan.features)
    return Freed(kept, seeds, features)


def free_some(
    layout: RolloutLayout, plan: CurrentPlan, scores: Floats, choices: int, generator: np.random.Generator,
    movable: Bools | None = None,
) -> FreedUnits:  # fmt: skip
    """Draw units to be freed: the first by a softmax of the scores, (units,), then from `FEWEST` to `MOST` near it.

    Only units that are `movable`, (units,), are freed; a region of a graph in parts grows on elsewhere if it must.
    """
    units = len(scores)
    movable = np.ones(units, np.bool_) if movable is None else movable
    kept = np.ones((choices, units), np.bool_)
    chance = np.where(movable, np.exp(scores - scores.max()), 0.0)
    if not chance.any():
        return FreedUnits(np.zeros(choices, np.int64), kept)
    seeds = generator.choice(units, choices, p=chance / chance.sum())
    most = min(MOST, int(movable.sum()))
    fewest = min(FEWEST, most)
    sizes = np.exp(generator.uniform(np.log(fewest), np.log(most + 1), choices)).astype(np.int64)
    uniform = generator.random((choices, DRAWS * MOST))
    frontier = np.zeros(len(layout.neighbour) + 4 * units + 1, np.int64)
    grow_regions(layout.link_start, layout.neighbour, plan.near_in_time, movable, seeds, sizes, uniform, frontier, kept)
    return FreedUnits(seeds, kept)


@compiled
def grow_regions(
    link_start: Ints, neighbour: Ints, near: Ints, movable: Bools, seeds: Ints, sizes: Ints, uniform: Floats,
    frontier: Ints, kept: Bools,
) -> None:  # fmt: skip
    """Write False to `kept`, (choices, units), for regions of some sizes, (choices,), that grow from seeds, (choices,).

    What is near a unit that is freed joins the frontier, once for each way in which it is near, and the next to be
    freed is drawn from that. `uniform` is (choices, draws) in [0, 1); a region ends with them if not before.
    """
    for choice in range(len(seeds)):
        frontier[0] = seeds[choice]
        waiting, freed = 1, 0
        for draw in uniform[choice]:
            if freed >= sizes[choice]:
                break
            unit = int(draw * len(movable))
            if waiting > 0:
                at = int(draw * waiting)
                unit = frontier[at]
                waiting -= 1
                frontier[at] = frontier[waiting]
            if not kept[choice, unit] or not movable[unit]:
                continue
            kept[choice, unit] = False
            freed += 1
            for i in range(link_start[unit], link_start[unit + 1]):
                frontier[waiting] = neighbour[i]
                waiting += 1
            for other in near[unit]:
                if other >= 0:
                    frontier[waiting] = other
                    waiting += 1
