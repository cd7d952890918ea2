"""REINFORCE with Placeto's baseline (Addanki et al. 2019, section 3.3, and the authors' code).

The return of step t is compared with the mean return of step t over the last ten episodes of the same problem, the
current one among them. The gradients of all steps of an episode make one update, to Adam, with their norm clipped.
Learning rate and entropy bonus fall linearly. Left open there and chosen here: how the bonus starts and ends, and one
baseline for each problem.

Ours to switch on: to learn from pieces of an episode while it goes on (`steps`), each paid what it gains by itself, and
several times from each piece, as PPO does (`epochs`); beside that to imitate the best placement known, which makes its
device of the current unit likelier in every state that was visited (`imitation`; Oh et al. 2018, "Self-Imitation
Learning"); and to simulate no placement twice (`remember`). A policy whose episodes start at the best placement so
learns to leave most units where they are, and steps that do cost no simulation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from envs.gym.iterative import Episode, Mdp, Rules
from envs.gym.observations import Progress
from envs.gym.observed_problem import ObservedProblem
from envs.gym.vector import simulate_together
from envs.simulation.simulator import Outcome
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.placeto.policy import PlacetoPolicy, Turn, play
from placers.learned.placeto.states import Kinship
from training.advantage import surrogate
from training.divergence import descend, stops_where_it_diverges
from training.recipe import Reinforce
from training.schedule import between, share_done

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

    observed: ObservedProblem
    kinship: Kinship
    bound: float  # seconds
    returns: deque[Floats] = field(default_factory=deque)  # of earlier updates: (units,) mean over their episodes
    best_seconds: float = np.inf  # of the placements that fit, since the trainer was made
    best_placement: Ints | None = None  # (units,)
    known: dict[bytes, Outcome] = field(default_factory=dict)  # of placements (units,), if they are remembered

    @classmethod
    def of(cls, problem: Problem, updates: int) -> Field:
        """A field whose baseline averages over so many updates, the current one among them."""
        observed = ObservedProblem.of(problem)
        return cls(observed, Kinship.of(problem), observed.prepared.lower_bound, deque(maxlen=updates - 1))

    def note(self, placement: Ints, outcome: Outcome) -> None:
        """Remember a placement, (units,), if it fits and none that does was faster."""
        if outcome.fits and outcome.step_seconds < self.best_seconds:
            self.best_seconds, self.best_placement = outcome.step_seconds, placement.copy()


@dataclass(eq=False)
class Piece:
    """Some steps of several episodes side by side, and what they paid."""

    start: int  # the first step's number
    turns: list[list[Turn]] = field(default_factory=list)  # step by step
    rewards: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # of each episode that moved


class ReinforceTrainer:
    """A policy, its optimizer, and the problems it learns from, of any sizes.

    Each update draws from generators seeded by (seed, update), so that a run resumed from a checkpoint goes on as if
    it had never stopped, unless it is to `remember` what placements cost, which is not saved. `mdp.best` holds the
    placement of least rho seen of each problem, `fields` the fastest that fits, which may be another: rho forgives a
    little too much memory for much time. Raises InputError without problems, for another objective than the step time,
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
        remember: bool = False,
    ) -> None:
        if not problems:
            raise InputError("training needs at least one problem")
        for problem in problems:
            policy.check(problem.cluster)
            problem.check_step_time("REINFORCE", "a policy that learns by PPO")
        limit_torch_threads()
        self.policy = policy
        self.settings = settings or Reinforce()
        self.mdp = Mdp(rules or Rules())
        self.seed = seed
        self.remember = remember
        self.fields = [Field.of(problem, self.settings.baseline_updates) for problem in problems]
        self._kinships = {each.observed: each.kinship for each in self.fields}
        self.updates = 0
        self.simulations = 0
        self.optimizer = torch.optim.Adam(policy.parameters(), self.settings.learning_rate)

    def update(self, *, count: int = 0, progress: float | None = None) -> ReinforceMetrics:
        """Play episodes and improve the policy once.

        - `count`: Episodes of each problem; as many as the settings say if it is 0.
        - `progress`: Share of the run that is over; by the number of updates unless it is given.

        Raises InputError if the policy diverges.
        """
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            return self._update(count, progress)

    def _update(self, count: int, progress: float | None) -> ReinforceMetrics:
        settings = self.settings
        progress = share_done(self.updates, settings.updates) if progress is None else progress
        rate = between(settings.learning_rate, settings.final_learning_rate, progress)
        bonus = between(settings.entropy, settings.final_entropy, progress)
        weight = between(settings.imitation, 0.0, progress)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        episodes, course = self._begin(count)
        gained: dict[int, list[Floats]] = {episode.progress.index: [] for episode in episodes}
        first = 0.0
        learned: list[tuple[float, float]] = []
        while (piece := self._play(episodes, course)).turns:
            returns = self._returns(episodes, piece)
            advantages = self._advantages(piece, returns, gained)
            first = first if learned else float(np.mean([each[0] for each in returns.values()]))
            learned.append(self._improve(piece, advantages, bonus, weight))
        for index, means in gained.items():
            self.fields[index].returns.append(np.concatenate(means))
        self.updates += 1
        fits, over_bound = self._judge(episodes)
        entropy, norm = np.mean(learned, axis=0).tolist()
        return ReinforceMetrics(self.updates, self.simulations, first, over_bound, fits, entropy, norm, rate)

    def note(self, index: int, placement: Ints, outcome: Outcome) -> None:
        """Take a simulated placement, (units,), of one of the problems, and keep it if it is the best so far."""
        if self.remember:
            self.fields[index].known[placement.tobytes()] = outcome
        self.fields[index].note(placement, outcome)
        self.mdp.note(self.fields[index].observed, placement, outcome)

    def _begin(self, count: int = 0) -> tuple[list[Episode], Iterator[list[Turn]]]:
        """Episodes before their first step, `count` of each problem or as the settings say, and their steps to come."""
        seeds = np.random.SeedSequence((self.seed, self.updates)).generate_state(2, np.uint64)
        rng = np.random.default_rng(seeds[0])
        generator = torch.Generator().manual_seed(int(seeds[1] >> 1))
        problems = min(self.settings.problems_per_update, len(self.fields))
        chosen = rng.choice(len(self.fields), problems, replace=False).repeat(count or self.settings.episodes)
        episodes = [self.mdp.begin(int(i), self.fields[i].observed, rng) for i in chosen]
        self._settle([episode for episode in episodes if self.mdp.rules.due(episode)])
        return episodes, play(self.policy, episodes, self._kinships, generator)

    def _play(self, episodes: list[Episode], course: Iterator[list[Turn]]) -> Piece:
        """As many steps of the course as the policy is to learn from at once; none if all episodes have ended."""
        piece = Piece(max(episode.steps for episode in episodes))
        for now in islice(course, self.settings.steps or None):
            piece.turns.append(now)
            judged = [turn.episode for turn in now if self.mdp.rules.due(episodes[turn.episode])]
            paid = dict(zip(judged, self._settle([episodes[i] for i in judged]), strict=True))
            for turn in now:
                piece.rewards[turn.episode].append(paid.get(turn.episode, 0.0))
        return piece

    def _settle(self, episodes: Sequence[Episode]) -> list[float]:
        """Tell the episodes what their placements cost; their rewards."""
        outcomes = self._outcomes(episodes)
        for episode, outcome in zip(episodes, outcomes, strict=True):
            self.note(episode.progress.index, episode.progress.placement, outcome)
        return [episode.settle(outcome) for episode, outcome in zip(episodes, outcomes, strict=True)]

    def _outcomes(self, episodes: Sequence[Episode]) -> list[Outcome]:
        """What the episodes' placements cost, by simulation unless it is known."""
        if not self.remember:
            self.simulations += len(episodes)
            return simulate_together(episodes)
        at = [(episode.progress.index, episode.progress.placement.tobytes()) for episode in episodes]
        new = {(i, key): each for (i, key), each in zip(at, episodes, strict=True) if key not in self.fields[i].known}
        self.simulations += len(new)
        for (i, key), outcome in zip(new, simulate_together(list(new.values())), strict=True):
            self.fields[i].known[key] = outcome
        return [self.fields[i].known[key] for i, key in at]

    def _returns(self, episodes: Sequence[Episode], piece: Piece) -> dict[int, Floats]:
        """Of each episode that moved, (steps,) what the piece still pays, in seconds or lower bounds."""
        returns = {}
        for i, paid in piece.rewards.items():
            scale = self.fields[episodes[i].progress.index].bound if self.settings.relative else 1.0
            returns[i] = returns_of(np.array(paid) / scale, self.settings.discount)
        return returns

    def _advantages(
        self, piece: Piece, returns: Mapping[int, Floats], gained: dict[int, list[Floats]]
    ) -> dict[int, Floats]:
        """Returns less baseline; puts each problem's mean returns behind those of the pieces before."""
        problem_of = {turn.episode: turn.state.index for turn in piece.turns[0]}
        baselines = {}
        for index in set(problem_of.values()):
            mean = np.mean([each for i, each in returns.items() if problem_of[i] == index], axis=0)
            gained[index].append(mean)
            earlier = [known[piece.start : piece.start + len(mean)] for known in self.fields[index].returns]
            baselines[index] = np.mean([*earlier, mean], axis=0)
        advantages = {i: each - baselines[problem_of[i]] for i, each in returns.items()}
        if not self.settings.normalised:
            return advantages
        deviation = float(np.concatenate(list(advantages.values())).std())
        return {i: each / max(deviation, 1e-8) for i, each in advantages.items()}

    def _improve(
        self, piece: Piece, advantages: Mapping[int, Floats], bonus: float, weight: float
    ) -> tuple[float, float]:
        """A step of Adam per epoch; mean entropy, and norm of the gradient before it was clipped, of the first."""
        portions = list(_portions(piece.turns))
        before: list[Tensor] = []  # log-probabilities of the decisions, by portion
        found: list[tuple[float, float]] = []
        for _ in range(self.settings.epochs):
            self.optimizer.zero_grad()
            entropies = 0.0
            for number, some in enumerate(portions):
                states = [turn.state for _, turn in some]
                seen = self.policy.see(states, [self._kinships[state.observed] for state in states])
                shown, counted = self._shown(states)
                devices = torch.stack([torch.tensor([turn.device for _, turn in some]), shown], dim=1)
                log_probabilities, entropy = self.policy.score(seen, devices)
                log_probability, likelihood = log_probabilities.unbind(1)
                if len(before) == number:
                    before.append(log_probability.detach())
                advantage = torch.tensor([advantages[turn.episode][step] for step, turn in some], dtype=torch.float32)
                gain = surrogate(log_probability - before[number], advantage, self.settings.clip) + bonus * entropy
                gain = gain + (weight * likelihood).where(counted, 0.0)
                (-gain.sum() / len(advantages)).backward()  # type: ignore[no-untyped-call]
                entropies += float(entropy.detach().sum())
            norm = descend(self.optimizer, self.settings.gradient_norm)
            found.append((entropies / sum(len(some) for some in portions), norm))
        return found[0]

    def _shown(self, states: Sequence[Progress]) -> tuple[Tensor, Tensor]:
        """(states,) the current unit's device in the best placement known, and (states,) bool, whether one is known."""
        best = [self.mdp.best_placement(state.observed) for state in states]
        devices = [0 if one is None else int(one[state.current]) for one, state in zip(best, states, strict=True)]
        return torch.tensor(devices), torch.tensor([one is not None for one in best])

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
