"""Placeto's MDP and its environment: visit each unit of a graph once, and move it to a device.

Addanki et al., NeurIPS 2019, section 3: the episode starts from some placement; the state shows the graph, the current
placement and the current unit; the action is a device for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import gymnasium as gym
import numpy as np

from envs.gym.environment import PlacementEnv
from envs.gym.observations import Progress
from envs.gym.problem_sampler import EnvironmentSettings, Keywords
from envs.prepared_problem import Incumbent, PreparedProblem
from envs.replacement.evaluator import replacement_of
from envs.replacement.kept import kept
from envs.rewards import (
    LONGEST_SECONDS,
    PENALTY_PER_GB,
    Penalty,
    RewardFunction,
    load_reward,
    pays_at_the_end,
    penalised_seconds,
)
from envs.simulation.simulator import Outcome
from graphs.cluster import GIB
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints
from graphs.problem import Problem
from graphs.runtime import FIFO

STARTS = ("random", "single", "zero", "best", "kept")
VISITS = ("topological", "random", "given")


@dataclass(frozen=True)
class EpisodeStart:
    """How episodes start, in which order they visit, and what they pay; PlacetoEnv describes the fields."""

    reward: str = "improvement"
    start: str = "random"
    visits: str = "topological"
    memory_gib: float | None = None
    penalty_per_gb: float = PENALTY_PER_GB
    longest_seconds: float = LONGEST_SECONDS
    every: int = 1  # steps from one simulation to the next, if the reward pays before the end; for many episodes

    def __post_init__(self) -> None:
        for what, given, known in (("start", self.start, STARTS), ("visits", self.visits, VISITS)):
            if given not in known:
                raise InputError(unknown(what, given, known))
        if self.every < 1:
            raise InputError(f"every is {self.every}; expected 1 or more steps from one simulation to the next")

    def due(self, episode: Episode) -> bool:
        """Whether the episode's placement is to be simulated now: at its start, after `every` steps, at its end."""
        return episode.ended or (not pays_at_the_end(self.reward) and episode.steps % self.every == 0)

    def simulations(self, units: int) -> int:
        """How many simulations an episode over a number of units takes."""
        return 1 if pays_at_the_end(self.reward) else 1 + -(-units // self.every)

    def penalty(self, problem: Problem) -> Penalty:
        """What memory costs; the threshold is that of the smallest device unless it is given."""
        smallest = float(problem.cluster.memory_bytes.min())
        threshold = smallest if self.memory_gib is None else self.memory_gib * GIB
        return Penalty(threshold, self.penalty_per_gb, self.longest_seconds)


class Episode:
    """One episode: `place` moves the current unit; `settle` takes what the placement now costs, and returns the reward.

    The caller simulates the placement before the first step and after each, so that many episodes may be simulated
    together. For a reward that comes last the last of these is enough. Improvements may be paid for several steps at
    once (`EpisodeStart.every`): they add up to the same.
    """

    def __init__(self, progress: Progress, visits: Ints, reward: RewardFunction, penalty: Penalty) -> None:
        self.progress = progress
        self.visits = visits  # (units,)
        self.steps = 0  # units placed so far
        self.outcome: Outcome | None = None  # of the placement as last simulated
        self._reward, self._penalty = reward, penalty

    @property
    def ended(self) -> bool:
        """Whether every unit has been visited."""
        return self.steps == len(self.visits)

    def place(self, device: int) -> None:
        """Put the current unit on a device and move to the next one. Raises InputError if the episode has ended."""
        if self.ended:
            raise InputError("the episode has ended; call reset")
        progress = self.progress
        progress.placement[progress.current] = device
        progress.visited[progress.current] = True
        self.steps += 1
        if not self.ended:
            progress.current = int(self.visits[self.steps])

    def settle(self, outcome: Outcome) -> float:
        """Take what the placement costs, and return the step's reward; 0 for the start, which is no step."""
        before, self.outcome = self.outcome or outcome, outcome
        return self._reward(before, outcome, self.ended, self._penalty) if self.steps else 0.0


class Mdp:
    """Begins episodes by its rules, and remembers the best placement of each problem."""

    def __init__(self, rules: EpisodeStart) -> None:
        self.rules = rules
        self.best: dict[PreparedProblem, Incumbent] = {}  # by rho
        self._reward = load_reward(rules.reward)

    def begin(
        self, index: int, prepared: PreparedProblem, rng: np.random.Generator, options: Mapping[str, Any] | None = None
    ) -> Episode:
        """An episode before its first step; options may give its start, "placement", and its "visits"."""
        placement = _given(options or {}, "placement", prepared.problem)
        visits = _given(options or {}, "visits", prepared.problem)
        placement = self._start(prepared, rng) if placement is None else placement
        visits = self._visits(prepared.problem, rng) if visits is None else visits
        progress = Progress(index, prepared, placement, np.zeros(len(placement), np.bool_), int(visits[0]))
        return Episode(progress, visits, self._reward, self.rules.penalty(prepared.problem))

    def note(self, prepared: PreparedProblem, placement: Ints, outcome: Outcome) -> None:
        """Remember a placement, (units,), if none of its problem has had a lower rho."""
        rho = penalised_seconds(outcome, self.rules.penalty(prepared.problem))
        self.best.setdefault(prepared, Incumbent()).offer(placement, rho)

    def best_placement(self, prepared: PreparedProblem) -> Ints | None:
        """(units,) the placement of least rho that was noted of a problem; None if none was."""
        return self.best[prepared].placement if prepared in self.best else None

    def _start(self, prepared: PreparedProblem, rng: np.random.Generator) -> Ints:
        problem, start = prepared.problem, self.rules.start
        best = self.best_placement(prepared) if start == "best" else None
        if best is not None:
            return best.copy()
        if start == "kept":
            return kept(replacement_of(prepared.evaluator, problem))
        if start in ("random", "best"):
            return rng.integers(0, len(problem.cluster), len(problem.units))
        return np.full(len(problem.units), prepared.fastest_device if start == "single" else 0)

    def _visits(self, problem: Problem, rng: np.random.Generator) -> Ints:
        if self.rules.visits == "random":
            return rng.permutation(len(problem.units))
        return problem.units.order if self.rules.visits == "topological" else np.arange(len(problem.units))


class PlacetoEnv(PlacementEnv):
    """One episode visits each unit of one problem once; the action is the device of the current unit.

    - `problems`: One problem or several, of any sizes but with equally many devices; each reset draws one.
    - `reward`: "improvement", "terminal", "square_root", or one of your own, "my.py:build" (see `envs.rewards`).
    - `start`: The placement before the first step: "random"; "single", all on the fastest device; "zero", all on the
      first; "best", that of least rho seen since the last seed (a random one at first); "kept", where all that can
      stay does, of a model that runs (`envs.replacement.kept`).
    - `visits`: Their order: "topological"; "random", drawn in each episode; "given", by the units' numbers.
    - `memory_gib`: Threshold M of the memory penalty, per device; the smallest device's memory unless given.
    - `penalty_per_gb`: Seconds for each GiB above it.
    - `longest_seconds`: Penalised seconds are clipped there.
    - `settings`: The keywords that all environments take, `graph`, `cluster`, `obs`, ...: see
      `envs.gym.problem_sampler.EnvironmentSettings`. Ops run first come, first served, as in the paper, unless
      `runtime` or `order` names another rule, or is "" for the problems' own.

    Raises InputError for wrong arguments. `info` carries `problem`, `step_seconds`, `peak_bytes` (devices,), `fits`.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem] | None = None, *, reward: str = "improvement",
        start: str = "random", visits: str = "topological", memory_gib: float | None = None,
        penalty_per_gb: float = PENALTY_PER_GB, longest_seconds: float = LONGEST_SECONDS, **settings: Unpack[Keywords],
    ) -> None:  # fmt: skip
        self.mdp = Mdp(EpisodeStart(reward, start, visits, memory_gib, penalty_per_gb, longest_seconds))
        if "order" not in settings:
            settings.setdefault("runtime", FIFO.name)
        super().__init__(problems, EnvironmentSettings(**settings))
        self.action_space = gym.spaces.Discrete(self._sampler.devices)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Options may name its problem by {"problem": index} or {"graph": graph}, and give its first "placement", (units,)
        devices, and its "visits", (units,) each unit once. Raises InputError for options that do not fit.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.mdp.best.clear()  # equal seeds, equal episodes
        self._episode = self.begin(self.np_random, options)
        self.progress = self._episode.progress
        outcome = self.progress.prepared.outcome(self.progress.placement)
        self.settle(self._episode, outcome)
        return self.shown(self.progress, outcome)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Put the current unit on a device and move to the next one."""
        if not self.action_space.contains(action):
            raise InputError(f"the action is {action!r}; expected a device from 0 to {self._sampler.devices - 1}")
        self._episode.place(int(action))
        outcome = self.progress.prepared.outcome(self.progress.placement)
        reward = self.settle(self._episode, outcome)
        observation, info = self.shown(self.progress, outcome)
        return observation, reward, self._episode.ended, False, info

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Episode:
        """An episode that the caller steps; the options are those of a reset."""
        return self.mdp.begin(*self._sampler.choose(rng, options, ("placement", "visits")), rng, options)

    def settle(self, episode: Episode, outcome: Outcome) -> float:
        """Give an episode what its placement costs; returns the reward of its latest step."""
        if episode.progress.index >= 0:  # a graph that came with a reset may be the only one of its kind
            self.mdp.note(episode.progress.prepared, episode.progress.placement, outcome)
        return episode.settle(outcome)

    def action_masks(self) -> Bools:
        """(devices,) whether each device has room for the current unit's weights (sb3-contrib's convention)."""
        mask: Bools = self.progress.prepared.has_room[self.progress.current].copy()
        return mask


def _given(options: Mapping[str, Any], what: str, problem: Problem) -> Ints | None:
    """(units,) the option's integers, checked; None if it is not given."""
    if options.get(what) is None:
        return None
    given = np.array(options[what])
    units, devices = len(problem.units), len(problem.cluster)
    right = given.shape == (units,) and np.issubdtype(given.dtype, np.integer)
    if what == "placement" and not (right and 0 <= given.min() <= given.max() < devices):
        raise InputError(f"option 'placement': expected {units} devices from 0 to {devices - 1}, got {options[what]!r}")
    if what == "visits" and not (right and (np.sort(given) == np.arange(units)).all()):
        raise InputError(f"option 'visits': expected each unit from 0 to {units - 1} once, got {options[what]!r}")
    return given.astype(np.int64)
