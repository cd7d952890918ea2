"""REINFORCE with Placeto's baseline (Addanki et al. 2019, section 3.3, and the authors' code).

The return of step t is compared with the mean return of step t over the last ten episodes of the same problem, the
current one among them. The gradients of all steps of an episode make one update, to Adam, with their norm clipped.
Learning rate and entropy bonus fall linearly. Left open there and chosen here: how the bonus starts and ends, and one
baseline for each problem.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

from envs.bounds import lower_bound
from envs.iterative import Episode, Mdp, Rules
from envs.simulator import Outcome
from envs.stage import Scene
from envs.vector import simulate_together
from graphs.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.policies.placeto import PlacetoPolicy, Turn, play
from placers.policies.placeto_states import Kinship
from training.recipe import Reinforce

NODES_AT_ONCE = 20_000  # units of the states whose gradient is taken together: some 100 MB, or that for each device


@dataclass(frozen=True)
class ReinforceMetrics:
    """One update in numbers."""

    update: int
    simulations: int  # so far
    first_return: float  # mean over episodes, seconds (or lower bounds)
    step_over_bound: float  # geometric mean of the final placements' step seconds over the lower bound
    fitting: float  # share of the final placements that fit
    entropy: float  # nats per step
    gradient_norm: float  # before it was clipped
    learning_rate: float

    def to_record(self) -> dict[str, float]:
        """As a flat record."""
        return asdict(self)


@dataclass(eq=False)
class Field:
    """One problem made ready for many episodes."""

    scene: Scene
    kinship: Kinship
    bound: float  # seconds
    returns: deque[Floats] = field(default_factory=deque)  # of the latest updates: (units,) mean over their episodes
    best_seconds: float = np.inf  # of the placements that fit, since the trainer was made
    best_placement: Ints | None = None  # (units,)

    @classmethod
    def of(cls, problem: Problem, updates: int) -> Field:
        """A field that remembers the returns of so many updates."""
        scene = Scene.of(problem)
        return cls(scene, Kinship.of(scene), max(lower_bound(problem), 1e-9), deque(maxlen=updates))

    def note(self, placement: Ints, outcome: Outcome) -> None:
        """Remember a placement, (units,), if it fits and none that does was faster."""
        if outcome.fits and outcome.step_seconds < self.best_seconds:
            self.best_seconds, self.best_placement = outcome.step_seconds, placement.copy()


class ReinforceTrainer:
    """A policy, its optimizer, and the problems it learns from, of any sizes.

    Each update draws from generators seeded by (seed, update), so that a run resumed from a checkpoint goes on as if
    it had never stopped. `mdp.best` holds the placement of least rho seen of each problem, `fields` the fastest that
    fits, which may be another: rho forgives a little too much memory for much time. Raises InputError without problems,
    or for a policy that is for another number of devices.
    """

    def __init__(
        self,
        policy: PlacetoPolicy,
        problems: Sequence[Problem],
        settings: Reinforce | None = None,
        *,
        rules: Rules | None = None,
        seed: int = 0,
    ) -> None:
        if not problems:
            raise InputError("training needs at least one problem")
        for problem in problems:
            policy.check(problem.cluster)
        self.policy = policy
        self.settings = settings or Reinforce()
        self.mdp = Mdp(rules or Rules())
        self.seed = seed
        self.fields = [Field.of(problem, self.settings.baseline_updates) for problem in problems]
        self._kinships = {each.scene: each.kinship for each in self.fields}
        self.updates = 0
        self.simulations = 0
        self.optimizer = torch.optim.Adam(policy.parameters(), self.settings.learning_rate)

    def update(self) -> ReinforceMetrics:
        """Play episodes and improve the policy once."""
        settings = self.settings
        progress = min(self.updates / max(settings.updates - 1, 1), 1.0)
        rate = settings.learning_rate + (settings.final_learning_rate - settings.learning_rate) * progress
        bonus = settings.entropy + (settings.final_entropy - settings.entropy) * progress
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        episodes, turns, rewards = self._play()
        advantages, first = self._advantages(episodes, rewards)
        entropy, norm = self._improve(turns, advantages, bonus)
        self.updates += 1
        fits, over_bound = self._judge(episodes)
        return ReinforceMetrics(self.updates, self.simulations, first, over_bound, fits, entropy, norm, rate)

    def note(self, index: int, placement: Ints, outcome: Outcome) -> None:
        """Remember a simulated placement, (units,), of one of the problems if it is the best so far."""
        self.fields[index].note(placement, outcome)
        self.mdp.note(self.fields[index].scene, placement, outcome)

    def _play(self) -> tuple[list[Episode], list[list[Turn]], list[list[float]]]:
        """Episodes played to their ends; what was decided, step by step; the rewards of each episode."""
        seeds = np.random.SeedSequence((self.seed, self.updates)).generate_state(2, np.uint64)
        rng = np.random.default_rng(seeds[0])
        generator = torch.Generator().manual_seed(int(seeds[1] >> 1))
        count = min(self.settings.problems_per_update, len(self.fields))
        chosen = rng.choice(len(self.fields), count, replace=False).repeat(self.settings.episodes)
        episodes = [self.mdp.begin(int(i), self.fields[i].scene, rng) for i in chosen]
        every_step = self.mdp.rules.reward == "improvement"
        if every_step:
            self._settle(episodes)
        turns: list[list[Turn]] = []
        rewards: list[list[float]] = [[] for _ in episodes]
        for now in play(self.policy, episodes, self._kinships, generator):
            turns.append(now)
            moved = [turn.episode for turn in now]
            judged = [i for i in moved if every_step or episodes[i].ended]
            paid = dict(zip(judged, self._settle([episodes[i] for i in judged]), strict=True))
            for i in moved:
                rewards[i].append(paid.get(i, 0.0))
        return episodes, turns, rewards

    def _settle(self, episodes: Sequence[Episode]) -> list[float]:
        """Simulate the episodes' placements; their rewards."""
        outcomes = simulate_together(episodes)
        self.simulations += len(episodes)
        for episode, outcome in zip(episodes, outcomes, strict=True):
            self.note(episode.progress.index, episode.progress.placement, outcome)
        return [episode.settle(outcome) for episode, outcome in zip(episodes, outcomes, strict=True)]

    def _advantages(
        self, episodes: Sequence[Episode], rewards: Sequence[Sequence[float]]
    ) -> tuple[list[Floats], float]:
        """(units,) return less baseline of each episode's steps, and the mean return of the first steps."""
        returns = []
        for episode, paid in zip(episodes, rewards, strict=True):
            scale = self.fields[episode.progress.index].bound if self.settings.relative else 1.0
            returns.append(returns_of(np.array(paid) / scale, self.settings.discount))
        per_field: dict[int, list[Floats]] = {}
        for episode, each in zip(episodes, returns, strict=True):
            per_field.setdefault(episode.progress.index, []).append(each)
        for index, gained in per_field.items():
            self.fields[index].returns.append(np.mean(gained, axis=0))
        baselines = {index: np.mean(self.fields[index].returns, axis=0) for index in per_field}
        advantages = [each - baselines[episode.progress.index] for episode, each in zip(episodes, returns, strict=True)]
        return advantages, float(np.mean([each[0] for each in returns]))

    def _improve(self, turns: list[list[Turn]], advantages: list[Floats], bonus: float) -> tuple[float, float]:
        """One step of Adam; the mean entropy, and the norm of the gradient before it was clipped."""
        self.optimizer.zero_grad()
        entropies, decisions = 0.0, sum(len(now) for now in turns)
        for some in _portions(turns):
            states = [turn.state for _, turn in some]
            seen = self.policy.see(states, [self._kinships[state.scene] for state in states])
            log_probability, entropy = self.policy.score(seen, torch.tensor([turn.device for _, turn in some]))
            advantage = torch.tensor([advantages[turn.episode][step] for step, turn in some], dtype=torch.float32)
            gain = (advantage * log_probability + bonus * entropy).sum() / len(advantages)
            (-gain).backward()  # type: ignore[no-untyped-call]
            entropies += float(entropy.detach().sum())
        norm = clip_grad_norm_(self.policy.parameters(), self.settings.gradient_norm)
        self.optimizer.step()
        return entropies / decisions, float(norm)

    def _judge(self, episodes: Sequence[Episode]) -> tuple[float, float]:
        """The share of final placements that fit, and their step times over the lower bound."""
        ends = [(episode.outcome, self.fields[episode.progress.index].bound) for episode in episodes]
        fits = [outcome.fits for outcome, _ in ends if outcome is not None]
        logs = [np.log(outcome.step_seconds / bound) for outcome, bound in ends if outcome is not None and outcome.fits]
        return float(np.mean(fits)), float(np.exp(np.mean(logs))) if logs else float("nan")


def returns_of(rewards: Floats, discount: float) -> Floats:
    """(steps,) of each step's reward and the discounted ones after it."""
    returns = np.array(rewards, np.float64)
    for step in range(len(returns) - 2, -1, -1):
        returns[step] += discount * returns[step + 1]
    return returns


def _portions(turns: list[list[Turn]]) -> Iterator[list[tuple[int, Turn]]]:
    """The turns with their steps, in portions of bounded size."""
    portion: list[tuple[int, Turn]] = []
    nodes = 0
    for step, now in enumerate(turns):
        for turn in now:
            portion.append((step, turn))
            nodes += len(turn.state.placement)
            if nodes >= NODES_AT_ONCE:
                yield portion
                portion, nodes = [], 0
    if portion:
        yield portion
