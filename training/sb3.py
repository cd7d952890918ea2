"""Stable-Baselines3 on graphs of several sizes: a features extractor for observations by ids.

    env = gymnasium.make("envs:Placeto-v0", problems=problems)
    model = PPO("MultiInputPolicy", env, policy_kwargs=policy_kwargs(env, network="placeto"))

What the graphs look like sits in a table that the extractor reads by the observation's problem id. The table is no
part of the parameters: a trained policy moves to graphs of other sizes, on as many devices, by

    moved = PPO("MultiInputPolicy", other_env, policy_kwargs=policy_kwargs(other_env, network="placeto"))
    moved.policy.load_state_dict(model.policy.state_dict())

A policy that draws only what an observation's mask allows, as pipelines need it:

    model = PPO(MaskedPolicy, gymnasium.make("envs:PipelinePlan-v0", problems=problems))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from envs.gym.iterative import PlacetoEnv
from envs.gym.observations import Progress, published
from envs.gym.one_shot import GdpEnv
from envs.prepared_problem import PreparedProblem
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError
from graphs.foundation.extras import missing
from graphs.foundation.torch_threads import limit_torch_threads
from placers.learned.placeto.network import PlacetoEncoder
from placers.learned.placeto.states import Relatives, States

try:
    from stable_baselines3.common.distributions import CategoricalDistribution, Distribution
    from stable_baselines3.common.policies import MultiInputActorCriticPolicy
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    from stable_baselines3.common.type_aliases import PyTorchObs
except ModuleNotFoundError as error:
    raise missing("stable_baselines3", __name__) from error


@dataclass(frozen=True, eq=False)
class GraphTable:
    """The graphs of an environment by problem id, padded to equal sizes; a padded edge joins a unit that is not."""

    features: NDArray[np.float32]  # (problems, units, devices + 2)
    exists: NDArray[np.float32]  # (problems, units) 1 or 0
    producer: NDArray[np.int64]  # (problems, edges) unit, or `units` for padding
    consumer: NDArray[np.int64]  # (problems, edges)

    @classmethod
    def of(cls, problems: Sequence[PreparedProblem], units: int) -> GraphTable:
        """The table of some problems, padded to `units`."""
        edges = max(len(each.problem.units.edges) for each in problems)
        features = np.zeros((len(problems), units, problems[0].features.shape[1]), np.float32)
        exists = np.zeros((len(problems), units), np.float32)
        ends = np.full((2, len(problems), edges), units)
        for row, each in enumerate(problems):
            features[row, : len(each.features)] = each.features
            exists[row, : len(each.features)] = 1
            ends[:, row, : len(each.problem.units.edges)] = each.problem.units.edges.T
        return cls(features, exists, ends[0], ends[1])


class GraphFeatures(BaseFeaturesExtractor):
    """Message passing over producers and consumers, for observations by ids.

    Yields (batch, features_dim): the current unit's embedding, the mean over all units, and each device's share of the
    work so far. A lighter network than Placeto's, and ours.
    """

    features: Tensor
    exists: Tensor
    producer: Tensor
    consumer: Tensor

    def __init__(self, observation_space: gym.spaces.Dict, table: GraphTable, width: int = 32, rounds: int = 4) -> None:
        devices = table.features.shape[2] - 2
        super().__init__(observation_space, features_dim=2 * width + devices)
        self.devices, self.rounds = devices, rounds
        self.enter = nn.Linear(2 * devices + 4, width)
        self.update = nn.Linear(3 * width, width)
        for name, array in vars(table).items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features of a batch of observations."""
        problem = observations["problem"].long()[:, 0]
        current = observations["current"].long()
        features, exists = self.features[problem], self.exists[problem][..., None]
        placement = observations["placement"][..., None]
        on_device = (placement == torch.arange(self.devices, device=placement.device)).float()
        is_current = torch.zeros_like(exists).scatter_(1, current[..., None], 1.0)
        nodes = torch.cat([features, on_device, observations["visited"][..., None], is_current], dim=2)
        embedding = self._embed(nodes, exists, self.producer[problem], self.consumer[problem])
        chosen = embedding.gather(1, current[..., None].expand(-1, 1, embedding.shape[2]))[:, 0]
        pooled = embedding.sum(1) / exists.sum(1)
        work = (features[..., : self.devices] * on_device).sum(1)
        load = work / work.sum(1, keepdim=True).clamp_min(1e-9)
        return torch.cat([chosen, pooled, load], dim=1)

    def _embed(self, nodes: Tensor, exists: Tensor, producer: Tensor, consumer: Tensor) -> Tensor:
        """(batch, units, width), zero for padding."""
        embedding = torch.relu(self.enter(nodes)) * exists
        for _ in range(self.rounds):
            before = _mean_of_neighbours(embedding, producer, consumer)
            after = _mean_of_neighbours(embedding, consumer, producer)
            message = torch.relu(self.update(torch.cat([embedding, before, after], dim=2)))
            embedding = (embedding + message) * exists
        return embedding


@dataclass(frozen=True, eq=False)
class KinTable:
    """The graphs of an environment as Placeto's network reads them, by problem id and padded to equal sizes."""

    features: NDArray[np.float32]  # (problems, units, 2) run time and output bytes
    exists: NDArray[np.bool_]  # (problems, units)
    edges: NDArray[np.int64]  # (problems, 2, edges) producer, consumer; -1 for padding
    kin: NDArray[np.uint8]  # (problems, units, units) of `Relatives`

    @classmethod
    def of(cls, problems: Sequence[PreparedProblem], units: int) -> KinTable:
        """The table of some problems, padded to `units`."""
        relatives = [Relatives.of(each.problem) for each in problems]
        count = len(problems)
        features = np.zeros((count, units, 2), np.float32)
        exists = np.zeros((count, units), np.bool_)
        edges = np.full((count, 2, max(1, *(each.edges.shape[1] for each in relatives))), -1)
        kin = np.zeros((count, units, units), np.uint8)
        for problem, (prepared, own) in enumerate(zip(problems, relatives, strict=True)):
            size = len(own.kin)
            at_rest = Progress(problem, prepared, np.zeros(size, np.int64), np.zeros(size, np.bool_), 0)
            features[problem, :size] = published(at_rest)[0, :, :2]
            exists[problem, :size] = True
            edges[problem, :, : own.edges.shape[1]] = own.edges
            kin[problem, :size, :size] = own.kin
        return cls(features, exists, edges, kin)


class PlacetoFeatures(BaseFeaturesExtractor):
    """Placeto's network up to its classifier, which is left to the algorithm's own layers; for observations by ids.

    Yields (batch, 8 width): pools of the current unit's ancestors, descendants and parallel units, and its embedding.
    """

    features: Tensor
    exists: Tensor
    edges: Tensor
    kin: Tensor

    def __init__(
        self, observation_space: gym.spaces.Dict, table: KinTable, width: int = 0, rounds: int = 8, mean: bool = False
    ) -> None:
        placement = observation_space["placement"]
        assert isinstance(placement, gym.spaces.Box)
        devices = int(placement.high.max()) + 1
        encoder = PlacetoEncoder(devices + 4, width, rounds, mean)
        super().__init__(observation_space, features_dim=encoder.pooled_width)
        self.devices, self.encode = devices, encoder
        for name, array in vars(table).items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features of a batch of observations."""
        problem = observations["problem"].long()[:, 0]
        current = observations["current"].long()
        exists = self.exists[problem]
        on_device = observations["placement"][..., None] == torch.arange(self.devices, device=problem.device)
        is_current = torch.zeros_like(observations["visited"]).scatter_(1, current, 1.0)
        flags = torch.stack([observations["visited"], is_current], dim=2)
        nodes = torch.cat([self.features[problem], on_device.float(), flags], dim=2)
        sizes = exists.sum(1)
        first = sizes.cumsum(0) - sizes
        edges = self.edges[problem]
        numbered = (edges + first[:, None, None]).transpose(0, 1)[:, edges[:, 0] >= 0]
        parts = torch.arange(len(problem), device=problem.device)
        kin = self.kin[problem, current[:, 0]][exists]
        states = States(
            nodes[exists], numbered, kin, parts.repeat_interleave(sizes), first + current[:, 0], parts, 0 * parts
        )
        features: Tensor = self.encode(states)
        return features


def policy_kwargs(
    env: gym.Env[Any, Any], *, network: str = "light", width: int | None = None, rounds: int | None = None
) -> dict[str, Any]:
    """`policy_kwargs` of "MultiInputPolicy" for an environment of this project that observes with obs="ids".

    `network` is "light", our own of 32 columns and 4 rounds, or "placeto", the published one, of as many columns as
    features and 8 rounds, for Placeto's environment. Raises InputError for another environment or network.
    """
    limit_torch_threads()
    inner = env.unwrapped
    if not isinstance(inner, PlacetoEnv | GdpEnv) or "problem" not in getattr(inner.observation_space, "spaces", {}):
        raise InputError(f"expected an environment of Placeto or GDP with obs='ids', got {env}")
    if network not in ("light", "placeto"):
        raise InputError(unknown("network", network, ("light", "placeto")))
    sizes: dict[str, Any] = {name: value for name, value in (("width", width), ("rounds", rounds)) if value is not None}
    if network == "light":
        sizes["table"] = GraphTable.of(inner.problems, inner.max_units)
        return {"features_extractor_class": GraphFeatures, "features_extractor_kwargs": sizes}
    if not isinstance(inner, PlacetoEnv):
        raise InputError("Placeto's network looks at one unit at a time; for GDP's environment take network='light'")
    sizes["table"] = KinTable.of(inner.problems, inner.max_units)
    space = inner.observation_space
    assert isinstance(space, gym.spaces.Dict)
    hidden = list(PlacetoFeatures(space, **sizes).encode.hidden_widths)
    return {
        "features_extractor_class": PlacetoFeatures,
        "features_extractor_kwargs": sizes,
        "net_arch": {"pi": hidden, "vf": hidden},
        "activation_fn": nn.ReLU,
        "ortho_init": False,  # Glorot's, as in the authors' code
    }


def _mean_of_neighbours(embedding: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """(batch, units, width) the mean of the sources' embeddings at each target of (batch, edges)."""
    batch, units, width = embedding.shape
    padded = torch.cat([embedding, embedding.new_zeros(batch, 1, width)], dim=1)
    index = target[..., None].expand(-1, -1, width)
    messages = padded.gather(1, source[..., None].expand(-1, -1, width))
    total = torch.zeros_like(padded).scatter_add_(1, index, messages)
    degree = padded.new_zeros(batch, units + 1).scatter_add_(1, target, torch.ones_like(target, dtype=padded.dtype))
    return (total / degree.clamp_min(1)[..., None])[:, :units]


class MaskedPolicy(MultiInputActorCriticPolicy):
    """The stock policy for observations by parts, one of which is the `mask` of the actions that are possible.

    Actions that the mask leaves out have no chance to be drawn, neither while experience is collected nor in updates.
    """

    _mask: Tensor  # (batch, actions) of the observations that the next distribution is for

    def forward(self, obs: PyTorchObs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Actions, values and log-probabilities of a batch of observations."""
        self._note(obs)
        return super().forward(obs, deterministic)  # type: ignore[arg-type]  # it takes dictionaries, too

    def evaluate_actions(self, obs: PyTorchObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, log-probabilities of actions, and entropies."""
        self._note(obs)
        return super().evaluate_actions(obs, actions)

    def get_distribution(self, obs: PyTorchObs) -> Distribution:
        """Of the actions that the masks allow."""
        self._note(obs)
        return super().get_distribution(obs)

    def _note(self, obs: PyTorchObs) -> None:
        assert isinstance(obs, dict)
        self._mask = obs["mask"].bool()

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        assert isinstance(self.action_dist, CategoricalDistribution)
        logits = self.action_net(latent_pi).masked_fill(~self._mask, float("-inf"))
        return self.action_dist.proba_distribution(action_logits=logits)
