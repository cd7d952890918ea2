"""Placeto's policy: given the graph, its placement and the current unit, a distribution over devices for that unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import torch
from torch import Tensor, nn

from envs.gym.iterative import Episode
from envs.gym.observations import FEATURES, Progress
from envs.gym.observed_problem import ObservedProblem
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from placers.learned.finite import check_outputs
from placers.learned.placeto.network import PlacetoNetwork
from placers.learned.placeto.states import Kinship, States
from placers.learned.shapes import Size, shape_of

NAME = "placeto"
Count = Annotated[int, msgspec.Meta(ge=0)]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy is made of; the knobs of a spec, "placeto:devices=2"."""

    devices: Count = 0  # as published, for so many, by a one-hot; 0: any number, each scored by what it sees (ours)
    width: Count = 0  # of the messages; 0: as many as features, as in the authors' code
    rounds: Size = 8  # of messages
    order: Literal["topological", "random", "given"] = "topological"  # in which units are visited
    mean: bool = False  # average where Placeto adds up
    explore: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0  # share of its draws that are uniform (ours)

    @property
    def features(self) -> str:
        """The features of `envs.gym.observations` that it reads."""
        return "published" if self.devices else "device_free"


class PlacetoPolicy(nn.Module):
    """A network of Placeto's as a distribution over devices."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        columns = FEATURES[shape.features].columns(shape.devices)
        self.network = PlacetoNetwork(columns, shape.devices or 1, shape.width, shape.rounds, shape.mean)

    def check(self, cluster: Cluster) -> None:
        """Raise InputError if the policy is for another number of devices."""
        if self.shape.devices not in (0, len(cluster)):
            raise InputError(
                f"this policy is for {self.shape.devices} devices, cluster {cluster.name!r} has {len(cluster)}; "
                "train one for any number (devices=0)"
            )

    def see(self, states: Sequence[Progress], kinships: Sequence[Kinship]) -> States:
        """The states as this policy reads them; their clusters are to be checked before."""
        return States.of(states, kinships, self.shape.features)

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


@dataclass(frozen=True, eq=False)
class Turn:
    """One decision of one episode."""

    episode: int
    state: Progress  # as it was decided upon
    device: int


def _mixed(logits: Tensor, share: float) -> Tensor:
    """Log-probabilities, (states, devices), with a share of them uniform: nothing ever becomes certain."""
    exists = ~torch.isinf(logits)
    uniform = exists / exists.sum(-1, keepdim=True)
    mixed = (1.0 - share) * logits.softmax(-1) + share * uniform
    return mixed.where(exists, torch.ones_like(mixed)).log().masked_fill(~exists, -torch.inf)


def new_placeto(network: Shape | str, seed: int) -> PlacetoPolicy:
    """An untrained policy of a shape, or of the one in a spec; same seed, same weights.

    Raises InputError as `shape_of` does.
    """
    shape = shape_of(network, NAME, Shape) if isinstance(network, str) else network
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return PlacetoPolicy(shape)


def play(
    policy: PlacetoPolicy,
    episodes: Sequence[Episode],
    kinships: Mapping[ObservedProblem, Kinship],
    generator: torch.Generator,
    *,
    greedy: int = 0,
) -> Iterator[list[Turn]]:
    """Play episodes to their ends, a step of each at a time; yields what has been decided, the units already placed.

    The first `greedy` of them take the most likely devices. Whoever wants rewards settles the episodes of the turns.
    """
    while living := [i for i, episode in enumerate(episodes) if not episode.ended]:
        states = [episodes[i].progress.copy() for i in living]
        seen = policy.see(states, [kinships[state.observed] for state in states])
        devices = policy.act(seen, generator, greedy=torch.tensor(living) < greedy).tolist()
        turns = [Turn(i, state, device) for i, state, device in zip(living, states, devices, strict=True)]
        for turn in turns:
            episodes[turn.episode].place(turn.device)
        yield turns
