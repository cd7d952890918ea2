"""Repairs of plans of one problem by a policy: some units are freed and placed again, in several ways at a time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Bools, Ints
from graphs.problem import Problem
from placers.contract.current_plan import CurrentPlan
from placers.learned.finite import check_outputs
from placers.learned.sequential.freeing import UnitChoice, free_some, scores_of
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.rollout import roll_out
from placers.learned.sequential.state import SAMPLED, Rollouts, RolloutState, Sampling, ScoreLayers


class UnitRepairer:
    """Proposes repairs. The problem is encoded once, for all of them."""

    def __init__(
        self,
        problem: Problem,
        layout: RolloutLayout,
        choice: UnitChoice | None,
        states: Tensor,
        layers: ScoreLayers,
        boldness: tuple[float, float, float],
        threads: int,
    ) -> None:
        """Roll-outs run on some threads; how many changes no result.

        - `states`: (units or more, hidden) of the encoded units.
        - `boldness`: The last sample's temperature, then the shares of memory that the first and the last may fill.
        """
        limit_torch_threads()
        self._problem, self._layout, self._choice, self._states = problem, layout, choice, states
        self._layers, self._boldness, self._threads = layers, boldness, threads
        self._rooms = [RolloutState.room_for(self._layout, self._layers) for _ in range(threads)]
        self._movable: Bools | None = None if problem.allowed is None else problem.allowed.sum(axis=1) > 1

    def propose(self, plan: CurrentPlan, count: int, generator: np.random.Generator) -> Ints:
        """(count, units) placements that differ from a plan's in some freed units at most, from sober to bold."""
        scores = scores_of(self._choice, self._states, plan)
        kept = free_some(self._layout, plan, scores, count, generator, self._movable).kept
        temperature, first, last = self._boldness
        sampling = Sampling(
            np.full(count, SAMPLED),
            generator.random(kept.shape),
            np.linspace(1.0, temperature, count),
            np.linspace(first, last, count),
            np.repeat(plan.placement[None], count, axis=0),
            kept,
        )
        rollouts = Rollouts.room_for(self._layout, count, keep=False)
        self._roll_out(sampling, rollouts)
        check_outputs(torch.from_numpy(rollouts.log_probability))
        return self._problem.made_allowed(rollouts.placements)

    def _roll_out(self, sampling: Sampling, rollouts: Rollouts) -> None:
        """Roll out all samples, each thread some of them."""
        parts = [part for part in np.array_split(np.arange(len(sampling.mode)), self._threads) if len(part)]
        if len(parts) <= 1:
            roll_out(self._layout, self._layers, sampling, self._rooms[0], rollouts)
            return

        def some(part: Ints, room: RolloutState) -> None:
            own = slice(int(part[0]), int(part[-1]) + 1)
            of_part = Rollouts.room_for(self._layout, len(part), keep=False)
            of_own = Sampling(
                sampling.mode[own], sampling.uniform[own], sampling.temperature[own], sampling.share[own],
                sampling.previous[own], sampling.kept[own],
            )  # fmt: skip
            roll_out(self._layout, self._layers, of_own, room, of_part)
            rollouts.placements[own], rollouts.log_probability[own] = of_part.placements, of_part.log_probability

        with ThreadPoolExecutor(len(parts)) as pool:  # roll-outs leave the interpreter's lock to others
            list(pool.map(some, parts, self._rooms))
