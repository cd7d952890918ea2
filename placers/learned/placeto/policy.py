"""Placeto's policy: given the graph, its placement and the current unit, a distribution over devices for that unit."""

from collections.abc import Sequence
from math import ceil
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from envs.gym.iterative import EpisodeStart, Mdp
from envs.gym.observations import FEATURES, Progress
from envs.prepared_problem import PreparedProblem
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.distinct import distinct
from placers.learned.episodes import EpisodePolicy, roll_out
from placers.learned.finite import check_outputs
from placers.learned.placeto.network import PlacetoNetwork
from placers.learned.placeto.states import Relatives, States
from placers.learned.settings import SELF_IMITATION, EpisodeRules, Reinforce, Settings
from placers.learned.shapes import Size, check_devices

MOST_EPISODES = 16  # when it places; what is left of a budget is spent on what they passed through
EVERY, MOST_SIMULATED = 4, 32  # fine-tuning's steps per simulation; more where an episode would take more of these
FINE_TUNING = Reinforce(
    episodes=4, baseline_updates=1, steps=32, epochs=2, learning_rate=3e-3, final_learning_rate=1e-3,
    entropy=0.03, final_entropy=0.01, gradient_norm=40.0, imitation=SELF_IMITATION, relative=True, normalised=True,
)  # fmt: skip
Count = Annotated[int, msgspec.Meta(ge=0)]


class PlacetoShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy is made of; the knobs of a spec, "placeto:devices=2"."""

    devices: Count = 0  # as published, for this number, by a one-hot; 0: any number, each scored by what it sees (ours)
    width: Count = 0  # of the messages; 0: as many as features, as in the authors' code
    rounds: Size = 8  # of messages
    order: Literal["topological", "random", "given"] = "topological"  # in which units are visited
    mean: bool = False  # average where Placeto adds up
    explore: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # share of its draws that are uniform (ours)

    @property
    def features(self) -> str:
        """The features of `envs.gym.observations` that it reads."""
        return "published" if self.devices else "device_free"


class PlacetoPolicy(EpisodePolicy[Relatives, States]):
    """A network of Placeto's as a distribution over devices."""

    kind: ClassVar[str] = "placeto"
    shape_type: ClassVar[type[msgspec.Struct]] = PlacetoShape

    def __init__(self, shape: PlacetoShape) -> None:
        super().__init__()
        self.shape: PlacetoShape = shape
        self.order = shape.order
        columns = FEATURES[shape.features].columns(shape.devices)
        self.network = PlacetoNetwork(columns, shape.devices or 1, shape.width, shape.rounds, shape.mean)

    def view(self, problem: Problem) -> Relatives:
        """How the units of a problem are related. Raises InputError if it has another number of devices."""
        if self.shape.devices:
            check_devices(self.kind, self.shape.devices, problem.cluster, or_else=", or for any number: devices=0")
        return Relatives.of(problem)

    def stack(self, states: Sequence[Progress], views: Sequence[Relatives]) -> States:
        """Several states as a batch, as this policy reads them."""
        return States.of(states, views, self.shape.features)

    def logits(self, states: States) -> Tensor:
        """(states, devices); -inf beyond the devices of a state's cluster."""
        scores: Tensor = self.network(states)
        check_outputs(scores)
        if not self.shape.devices:
            shape = int(states.state[-1]) + 1, int(states.device.max()) + 1
            scores = scores.new_full(shape, -torch.inf).index_put((states.state, states.device), scores[:, 0])
        return _mixed(scores, self.shape.explore) if self.shape.explore else scores

    @torch.no_grad()
    def act(self, states: States, generator: torch.Generator, *, greedy: Tensor | None = None) -> Tensor:
        """(states,) devices, drawn; the most likely where `greedy`, (states,) bool, is true."""
        logits = self.logits(states)
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
        return drawn if greedy is None else torch.where(greedy, logits.argmax(-1), drawn)

    def score(self, states: States, devices: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of devices, (states,) or several for each state; and its entropy in nats, (states,)."""
        log_probabilities = self.logits(states).log_softmax(-1)
        chosen = log_probabilities.gather(-1, devices.view(len(devices), -1)).view_as(devices)
        finite = log_probabilities.masked_fill(torch.isinf(log_probabilities), 0.0)
        return chosen, -(log_probabilities.exp() * finite).sum(-1)

    def candidates(self, problem: Problem, count: int, seed: int) -> Ints:
        """(at most count, units) what episodes from all units on the fastest device come to, the greedy one first.

        The ends of all come first, then what they passed through, the latest first.
        """
        relatives, prepared, rng = self.view(problem), PreparedProblem(problem), np.random.default_rng(seed)
        mdp = Mdp(EpisodeStart(start="single", visits=self.order))
        episodes = [mdp.begin(0, prepared, rng) for _ in range(min(MOST_EPISODES, count))]
        steps = roll_out(self, episodes, {prepared: relatives}, torch.Generator().manual_seed(seed), greedy=1)
        passed = [[episode.progress.placement.copy() for episode in episodes] for _ in steps]
        allowed = (problem.made_allowed(placement) for after_step in reversed(passed) for placement in after_step)
        return distinct(np.stack(list(allowed)))[:count]

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for any number of them
        """Some episodes per update, which begin where the best one has come to.

        A policy learns from parts of an episode, and soon leaves most units of the best placement where they are, so
        that a budget buys hundreds of episodes.
        """
        rules = EpisodeRules(start="best", every=max(EVERY, ceil(problem.graph.num_units / MOST_SIMULATED)))
        return Settings(reinforce=FINE_TUNING, rules=rules)


def _mixed(logits: Tensor, share: float) -> Tensor:
    """Log-probabilities, (states, devices), with a share of them uniform: nothing ever becomes certain."""
    exists = ~torch.isinf(logits)
    uniform = exists / exists.sum(-1, keepdim=True)
    mixed = (1.0 - share) * logits.softmax(-1) + share * uniform
    return mixed.where(exists, torch.ones_like(mixed)).log().masked_fill(~exists, -torch.inf)
