"""Policies that place the units of a problem one after another, seeing where all are: the episodes of Placeto's MDP."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import torch
from torch import Tensor

from envs.gym.iterative import Episode
from envs.gym.observations import Progress
from envs.prepared_problem import PreparedProblem
from graphs.problem import Problem
from placers.learned.policy import LearnedPolicy, View

States = TypeVar("States")


class EpisodePolicy(LearnedPolicy, Generic[View, States]):
    """A distribution over devices for the current unit of an episode, which REINFORCE trains."""

    trainer = "reinforce"
    shape: msgspec.Struct  # what it is made of; a run is resumed only with the same
    order: str  # in which units are visited, as in `envs.gym.iterative.EpisodeStart`

    @abstractmethod
    def view(self, problem: Problem) -> View:
        """What the policy sees of a problem. Raises InputError if the policy is not for such a problem."""

    @abstractmethod
    def stack(self, states: Sequence[Progress], views: Sequence[View]) -> States:
        """Several states, each with the view of its problem, as a batch."""

    @abstractmethod
    def act(self, states: States, generator: torch.Generator, *, greedy: Tensor | None = None) -> Tensor:
        """(states,) devices, drawn; the most likely where `greedy`, (states,) bool, is true."""

    @abstractmethod
    def score(self, states: States, devices: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of devices, (states,) or several for each state; and its entropy in nats, (states,)."""


@dataclass(frozen=True, eq=False)
class EpisodeDecision:
    """One decision of one episode."""

    episode: int
    state: Progress  # on which the decision was based
    device: int


def roll_out(
    policy: EpisodePolicy[View, States],
    episodes: Sequence[Episode],
    views: Mapping[PreparedProblem, View],
    generator: torch.Generator,
    *,
    greedy: int = 0,
) -> Iterator[list[EpisodeDecision]]:
    """Follow episodes to their ends, a step of each at a time; yields the decisions, after the units were placed.

    The first `greedy` episodes take the most likely devices. A caller that needs rewards simulates the placements
    between steps.
    """
    while running := [i for i, episode in enumerate(episodes) if not episode.ended]:
        states = [episodes[i].progress.copy() for i in running]
        batch = policy.stack(states, [views[state.prepared] for state in states])
        devices = policy.act(batch, generator, greedy=torch.tensor(running) < greedy).tolist()
        decisions = [
            EpisodeDecision(i, state, device) for i, state, device in zip(running, states, devices, strict=True)
        ]
        for decision in decisions:
            episodes[decision.episode].place(decision.device)
        yield decisions
