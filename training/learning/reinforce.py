"""REINFORCE with Placeto's baseline (Addanki et al. 2019, section 3.3, and the authors' code).

The return of step t is compared with the mean return of step t over the last ten episodes of the same problem, the
current one among them. The gradients of all steps of an episode make one update, to Adam, with their norm clipped.
Learning rate and entropy bonus fall linearly. Left open there and chosen here: how the bonus starts and ends, and one
baseline for each problem.

Ours to switch on: to learn from parts of an episode before it ends (`steps`), each paid what it gains by itself, and
several times from each part, as PPO does (`epochs`); in addition, to imitate the best placement known, which makes its
device of the current unit likelier in every state that was visited (`imitation`; Oh et al. 2018, "Self-Imitation
Learning"); and to simulate no placement twice (`remember`). A policy whose episodes start at the best placement so
learns to leave most units where they are, and steps that do cost no simulation.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, Generic

import msgspec
import numpy as np
import torch
from torch import Tensor

from envs.gym.iterative import Episode, EpisodeStart, Mdp
from envs.gym.observations import Progress
from envs.gym.vector import simulate_together
from envs.plans.plan import Plan
from envs.prepared_problem import Incumbent, PreparedProblem
from envs.simulation.simulator import Outcome
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.episodes import EpisodeDecision, EpisodePolicy, States, roll_out
from placers.learned.policy import View
from placers.learned.settings import Reinforce, Settings
from training.learning.advantage import surrogate
from training.learning.divergence import descend, stops_where_it_diverges
from training.learning.problem_report import ProblemReport, by_kind, mean_fitting, mean_over_bound
from training.learning.ranks import ALONE, Ranks
from training.learning.trainer import Trainer, below, generators, read_incumbents, share_done, written_incumbents
from training.problems.random.renewed import RenewedProblems

NODES_AT_ONCE = 20_000  # units of the states whose gradient is taken together: some 100 MB, or that for each device


@dataclass(frozen=True)
class ReinforceMetrics:
    """One update in numbers."""

    update: int
    simulations: int  # so far
    decisions: int  # of its episodes
    ep_rew_mean: float  # mean over episodes of what they pay from their first step on, seconds (or lower bounds)
    step_over_bound: float  # geometric mean of the final placements' step seconds over the lower bound
    fitting: float  # share of the final placements that fit
    loss: float  # this and the next two: of the first pass over the steps
    entropy: float  # nats per step
    gradient_norm: float  # before it was clipped
    learning_rate: float
    by_kind: Mapping[str, float] = field(default_factory=dict)  # "step_over_bound/rnnlm" and others


@dataclass(eq=False)
class ReinforceProblem(Generic[View]):
    """One problem for many episodes of one policy."""

    prepared: PreparedProblem  # whose incumbent is the fastest fitting placement since the trainer was made
    view: View  # what the policy sees of it
    returns: deque[Floats] = field(default_factory=deque)  # of earlier updates: (units,) mean over their episodes
    known: dict[bytes, Outcome] = field(default_factory=dict)  # of placements (units,), if they are remembered


@dataclass(eq=False)
class RolloutBuffer:
    """Some steps of several episodes, and what they paid."""

    start: int  # the first step's number
    decisions: list[list[EpisodeDecision]] = field(default_factory=list)  # step by step
    rewards: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # of each episode that moved


class ReinforceTrainer(Trainer, Generic[View, States]):
    """A `Trainer` for problems of any sizes.

    A resumed run ends as if it had never stopped, unless it is to `remember` what placements cost, which is not saved.
    `mdp.best` holds the placement of least rho seen of each problem, `problems` the fastest that fits, which may be
    another: rho forgives a little too much memory for much time. Raises InputError without problems, for another
    objective than the step time, or for a policy that is for another number of devices.
    """

    knows_step_times_only: ClassVar[bool] = True

    def __init__(
        self,
        policy: EpisodePolicy[View, States],
        problems: Sequence[Problem],
        settings: Reinforce | None = None,
        *,
        rules: EpisodeStart | None = None,
        seed: int = 0,
        remember: bool = False,
    ) -> None:
        if not problems:
            raise InputError("training needs at least one problem")
        self.settings = settings or Reinforce()
        super().__init__(seed, self.settings.updates)
        self.policy: EpisodePolicy[View, States] = policy
        self.mdp = Mdp(rules or EpisodeStart())
        self.remember = remember
        for problem in problems:
            problem.check_step_time("REINFORCE", "a policy that learns by PPO", measured=True)
        self.problems = [
            ReinforceProblem(PreparedProblem(each), policy.view(each), deque(maxlen=self.settings.baseline_updates - 1))
            for each in problems
        ]
        self._views = {each.prepared: each.view for each in self.problems}
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(policy.parameters(), self.settings.learning_rate)

    @classmethod
    def of(
        cls,
        policy: EpisodePolicy[View, States],
        problems: Sequence[Problem],
        settings: Settings,
        seed: int,
        renewed: RenewedProblems | None = None,
        ranks: Ranks = ALONE,
    ) -> ReinforceTrainer[View, States]:
        """As `Trainer.of`. Raises InputError for problems that are renewed, and for several ranks."""
        if ranks.count > 1:
            raise InputError("REINFORCE learns in one process; start it without torchrun")
        if renewed is not None:
            raise InputError("REINFORCE learns from problems that stay; set world.problems to 0")
        rules = EpisodeStart(visits=policy.order, **msgspec.structs.asdict(settings.rules))
        return cls(policy, problems, settings.reinforce, rules=rules, seed=seed)

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The baselines' returns, the best placements, and counters."""
        of_returns = {index: each.returns for index, each in enumerate(self.problems) if each.returns}
        tensors = {f"returns.{index}": torch.from_numpy(np.stack(returns)) for index, returns in of_returns.items()}
        tensors |= written_incumbents(
            {index: self.mdp.best.get(each.prepared, Incumbent()) for index, each in enumerate(self.problems)}
        )
        counters = {"updates": str(self.updates), "simulations": str(self.simulations)}
        return tensors, {"version": self.version, "of": self._fingerprint(), **counters}

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for one of another seed, policy, problems or settings."""
        if counters.get("version") != self.version or counters.get("of") != self._fingerprint():
            raise InputError("is of another seed, policy, problems, rules or settings than this run")
        for index, value in below("returns.", tensors).items():
            self.problems[int(index)].returns.extend(value.numpy())
        for number, best in read_incumbents(tensors).items():
            self.mdp.best[self.problems[number].prepared] = best
        self.updates = int(counters["updates"])
        self.simulations = int(counters["simulations"])

    def _fingerprint(self) -> str:
        """What must not change when a run is resumed."""
        given = [each.prepared.problem for each in self.problems]
        problems = [
            (each.graph.fingerprint, each.cluster.fingerprint, each.optimizer, each.runtime.order) for each in given
        ]
        parts = (self.seed, self.policy.shape, self.settings, self.mdp.rules, problems)
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    def fine_tune(self, opening: Plan, simulations: int) -> Iterator[tuple[int, Incumbent]]:
        """Updates until the next one might exceed this number of simulations, no placement being simulated twice.

        The first episodes know the opening and the arbitrary start of the paper, all units on one device. An episode
        that ends where it began takes no simulation; so that a policy that moves nothing comes to an end, each counts
        as one when it comes to how many updates there are.
        """
        self.remember = True
        prepared, best = self.problems[0].prepared, self.problems[0].prepared.incumbent
        first = opening.per_unit(prepared.problem)
        self.note(0, first, prepared.outcome(first))
        yield 0, best
        if simulations:
            together = np.full(len(first), prepared.fastest_device)
            self.note(0, together, prepared.outcome(together))
            self.simulations += 1
            yield self.simulations, best
        at_most = self.mdp.rules.simulations(len(first))
        for _ in range(simulations // self.settings.episodes):
            count = min(self.settings.episodes, (simulations - self.simulations) // at_most)
            if count == 0:
                return
            before = self.simulations
            self.update(count=count, progress=before / simulations)
            if self.simulations > before:
                yield self.simulations, best

    def update(self, *, count: int = 0, progress: float | None = None) -> ReinforceMetrics:
        """Roll out episodes and improve the policy once.

        - `count`: Episodes of each problem; as many as the settings say if it is 0.
        - `progress`: Share of the run that is over; by the number of updates unless it is given.

        Raises InputError if the policy diverges.
        """
        settings = self.settings
        progress = share_done(self.updates, settings.updates) if progress is None else progress
        rate, bonus, weight = self.scheduled(settings, settings.imitation, progress)
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            episodes, steps = self._begin(count)
            gained: dict[int, list[Floats]] = {episode.progress.index: [] for episode in episodes}
            first = 0.0
            decisions, learned = 0, list[tuple[float, float, float]]()
            while (buffer := self._collect(episodes, steps)).decisions:
                returns = self._returns(episodes, buffer)
                advantages = self._advantages(buffer, returns, gained)
                first = first if learned else float(np.mean([each[0] for each in returns.values()]))
                learned.append(self._improve(buffer, advantages, bonus, weight))
                decisions += sum(len(each) for each in buffer.decisions)
        for index, means in gained.items():
            self.problems[index].returns.append(np.concatenate(means))
        self.updates += 1
        reports = list(self._results(episodes))
        loss, entropy, norm = np.mean(learned, axis=0).tolist()
        return ReinforceMetrics(
            self.updates, self.simulations, decisions, first, mean_over_bound(reports), mean_fitting(reports),
            loss, entropy, norm, rate, by_kind(reports),
        )  # fmt: skip

    def note(self, index: int, placement: Ints, outcome: Outcome) -> None:
        """Take a simulated placement, (units,), of one of the problems, and keep it if it is the best so far."""
        if self.remember:
            self.problems[index].known[placement.tobytes()] = outcome
        if outcome.fits:
            self.problems[index].prepared.incumbent.offer(placement, outcome.step_seconds)
        self.mdp.note(self.problems[index].prepared, placement, outcome)

    def _begin(self, count: int = 0) -> tuple[list[Episode], Iterator[list[EpisodeDecision]]]:
        """Episodes before their first step, `count` of each problem or as the settings say, and their steps to come."""
        rng, generator = generators(self.seed, self.updates)
        problems = min(self.settings.problems_per_update, len(self.problems))
        chosen = rng.choice(len(self.problems), problems, replace=False).repeat(count or self.settings.episodes)
        episodes = [self.mdp.begin(int(i), self.problems[i].prepared, rng) for i in chosen]
        self._pay([episode for episode in episodes if self.mdp.rules.due(episode)])
        return episodes, roll_out(self.policy, episodes, self._views, generator)

    def _collect(self, episodes: list[Episode], steps: Iterator[list[EpisodeDecision]]) -> RolloutBuffer:
        """As many of the steps to come as the policy is to learn from at once; none if all episodes have ended."""
        buffer = RolloutBuffer(max(episode.steps for episode in episodes))
        for decisions in islice(steps, self.settings.steps or None):
            buffer.decisions.append(decisions)
            simulated = [each.episode for each in decisions if self.mdp.rules.due(episodes[each.episode])]
            paid = dict(zip(simulated, self._pay([episodes[i] for i in simulated]), strict=True))
            for each in decisions:
                buffer.rewards[each.episode].append(paid.get(each.episode, 0.0))
        return buffer

    def _pay(self, episodes: Sequence[Episode]) -> list[float]:
        """The rewards of episodes, by what their placements cost as they stand."""
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
        new = {(i, key): each for (i, key), each in zip(at, episodes, strict=True) if key not in self.problems[i].known}
        self.simulations += len(new)
        for (i, key), outcome in zip(new, simulate_together(list(new.values())), strict=True):
            self.problems[i].known[key] = outcome
        return [self.problems[i].known[key] for i, key in at]

    def _returns(self, episodes: Sequence[Episode], buffer: RolloutBuffer) -> dict[int, Floats]:
        """Of each episode that moved, (steps,) what the buffer still pays, in seconds or lower bounds."""
        returns = {}
        for i, paid in buffer.rewards.items():
            scale = episodes[i].progress.prepared.lower_bound if self.settings.relative else 1.0
            returns[i] = returns_of(np.array(paid) / scale, self.settings.discount)
        return returns

    def _advantages(
        self, buffer: RolloutBuffer, returns: Mapping[int, Floats], gained: dict[int, list[Floats]]
    ) -> dict[int, Floats]:
        """Returns less baseline; puts each problem's mean returns behind those of the buffers before."""
        problem_of = {each.episode: each.state.index for each in buffer.decisions[0]}
        baselines = {}
        for index in set(problem_of.values()):
            mean = np.mean([each for i, each in returns.items() if problem_of[i] == index], axis=0)
            gained[index].append(mean)
            earlier = [known[buffer.start : buffer.start + len(mean)] for known in self.problems[index].returns]
            baselines[index] = np.mean([*earlier, mean], axis=0)
        advantages = {i: each - baselines[problem_of[i]] for i, each in returns.items()}
        if not self.settings.normalised:
            return advantages
        deviation = float(np.concatenate(list(advantages.values())).std())
        return {i: each / max(deviation, 1e-8) for i, each in advantages.items()}

    def _improve(
        self, buffer: RolloutBuffer, advantages: Mapping[int, Floats], bonus: float, weight: float
    ) -> tuple[float, float, float]:
        """A step of Adam per epoch; loss, mean entropy, and norm of the gradient, not clipped, of the first."""
        portions = list(_portions(buffer.decisions))
        before: list[Tensor] = []  # log-probabilities of the decisions, by portion
        found: list[tuple[float, float, float]] = []
        for _ in range(self.settings.epochs):
            self.optimizer.zero_grad()
            total = entropies = 0.0
            for number, some in enumerate(portions):
                states = [decision.state for _, decision in some]
                batch = self.policy.stack(states, [self._views[state.prepared] for state in states])
                best, known = self._best_devices(states)
                devices = torch.stack([torch.tensor([decision.device for _, decision in some]), best], dim=1)
                log_probabilities, entropy = self.policy.score(batch, devices)
                log_probability, likelihood = log_probabilities.unbind(1)
                if len(before) == number:
                    before.append(log_probability.detach())
                advantage = torch.tensor([advantages[each.episode][step] for step, each in some], dtype=torch.float32)
                gain = surrogate(log_probability - before[number], advantage, self.settings.clip) + bonus * entropy
                gain = gain + (weight * likelihood).where(known, 0.0)
                loss = -gain.sum() / len(advantages)
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
                entropies += float(entropy.detach().sum())
            norm = descend(self.optimizer, self.settings.gradient_norm)
            found.append((total, entropies / sum(len(some) for some in portions), norm))
        return found[0]

    def _best_devices(self, states: Sequence[Progress]) -> tuple[Tensor, Tensor]:
        """(states,) the current unit's device in the best placement known, and (states,) bool, whether one is known."""
        best = [self.mdp.best_placement(state.prepared) for state in states]
        devices = [0 if one is None else int(one[state.current]) for one, state in zip(best, states, strict=True)]
        return torch.tensor(devices), torch.tensor([one is not None for one in best])

    def _results(self, episodes: Sequence[Episode]) -> Iterator[ProblemReport]:
        """How the final placement of each episode did."""
        for episode in episodes:
            if (end := episode.outcome) is not None:
                prepared = episode.progress.prepared
                seconds, fits = np.array([end.step_seconds]), np.array([end.fits])
                yield ProblemReport.of(prepared.problem, seconds, fits, bound=prepared.lower_bound)


def returns_of(rewards: Floats, discount: float) -> Floats:
    """(steps,) of each step's reward and the discounted ones after it."""
    returns = np.array(rewards, np.float64)
    for step in range(len(returns) - 2, -1, -1):
        returns[step] += discount * returns[step + 1]
    return returns


def _portions(steps: list[list[EpisodeDecision]]) -> Iterator[list[tuple[int, EpisodeDecision]]]:
    """The decisions with the numbers of their steps, in portions of bounded size."""
    portion: list[tuple[int, EpisodeDecision]] = []
    nodes = 0
    for step, decisions in enumerate(steps):
        for decision in decisions:
            portion.append((step, decision))
            nodes += len(decision.state.placement)
            if nodes >= NODES_AT_ONCE:
                yield portion
                portion, nodes = [], 0
    if portion:
        yield portion
