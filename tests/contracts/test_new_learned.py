"""A new learned placer is one new folder: three of them live for a test each."""

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from evaluation.commands.listing import Listing
from evaluation.commands.load_placer import load_placer
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.learned.lookup import learned_placers
from placers.learned.policy_meta import load_meta
from placers.learned.settings import Ppo
from tests.contracts.test_learned import check_a_whole_life, problems, recipe
from training.recipe import OrderStage
from training.runs.train import train

NEW = "of_one_contract"
FOLDER = Path(__file__).resolve().parents[2] / "placers" / "learned" / NEW
BY_PPO = '''"""A learned placer that exists for the length of one test."""

from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import torch
from torch import nn

from envs.costs.costs import costs_of
from placers.learned.batch import Batch
from placers.learned.features import PAIR_FEATURES, observe
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.policy import Policy, Scores, UnitDevices
from placers.learned.settings import Settings, brief_ppo

TRAINER = "ppo"


class Shape(msgspec.Struct, frozen=True):
    pass


class LinearPolicy(Policy):
    kind = "of_one_contract"
    shape_type = Shape
    decoder_features = ("made_up",)

    def __init__(self, shape):
        super().__init__()
        self.weigh = nn.Linear(len(PAIR_FEATURES), 1)

    def view(self, problem):
        return observe(problem, costs_of(problem))

    def stack(self, views):
        return Batch.of(views)

    def logits(self, batch):
        return self.weigh(batch.pairs).squeeze(-1).masked_fill(~batch.device_mask[:, None], -1e9)

    @torch.no_grad()
    def act(self, batch, samples, generator):
        chances = self.logits(batch).softmax(-1)
        drawn = torch.multinomial(chances.flatten(0, 1), samples, replacement=True, generator=generator)
        return UnitDevices(drawn.view(*chances.shape[:2], samples).transpose(1, 2))

    def score(self, batch, action):
        table = self.logits(batch).log_softmax(-1)
        spread = table[:, None].expand(-1, action.devices.shape[1], -1, -1)
        chosen = spread.gather(-1, action.devices[..., None]).squeeze(-1)
        entropy = -(table.exp() * table).sum(-1)
        return Scores(chosen * batch.unit_mask[:, None], entropy * batch.unit_mask, batch.unit_mask)

    def actions_of(self, batch, placements):
        return UnitDevices.of(placements, batch.unit_mask.shape[1])

    def candidates(self, problem, count, seed):
        batch = self.stack([self.view(problem)])
        drawn = self.act(batch, count, torch.Generator().manual_seed(seed)).devices[0]
        drawn[0] = self.logits(batch)[0].argmax(-1)
        return drawn.numpy()

    def fine_tuning(self, problem, simulations):
        return Settings(ppo=brief_ppo(simulations, samples=4))


new_policy = LinearPolicy.new
build = partial(LearnedPlacer.with_network, LinearPolicy, network="of_one_contract")
'''


REPAIRS_AND_ORDERS = (
    BY_PPO[: BY_PPO.index("new_policy")]
    + """
@dataclass(frozen=True, eq=False)
class Drawn(UnitDevices):
    last_first: torch.Tensor  # (problems, samples, 1) whether the last op is the most urgent


class RepairingPolicy(LinearPolicy):
    def __init__(self, shape):
        super().__init__(shape)
        self.turn = nn.Parameter(torch.zeros(()))
        self.learns, self.repaired = "all", 0

    def learn(self, what):
        self.learns = what
        for name, weight in self.named_parameters():
            weight.requires_grad_(what == "all" or (name == "turn") == (what == "order"))

    def view(self, problem):
        return problem, super().view(problem)

    def stack(self, views):
        return [problem for problem, _ in views], super().stack([seen for _, seen in views])

    def act(self, batch, samples, generator):
        devices = super().act(batch[1], samples, generator).devices
        drawn = torch.rand(*devices.shape[:2], 1, generator=generator) < torch.sigmoid(self.turn)
        return Drawn(devices, drawn.float())

    def repair(self, batch, samples, generator, plans):
        action = self.act(batch, samples, generator)
        for devices, plan in zip(action.devices, plans, strict=True):
            if plan is not None:
                self.repaired += 1
                devices[:, 1 : len(plan.placement)] = torch.from_numpy(plan.placement[1:])
        return action

    def repairer(self, problem, threads):
        return FirstUnit(problem)

    def score(self, batch, action):
        scores = super().score(batch[1], action)
        if self.learns == "devices":
            return scores
        signs = 2 * action.last_first - 1
        return scores.with_order(nn.functional.logsigmoid(signs * self.turn), torch.ones(len(signs), 1).bool())

    def drawn_orders(self, batch, action):
        if self.learns == "devices":
            return [None] * len(batch[0])
        return [urgency(problem, turned[:, 0] > 0) for problem, turned in zip(batch[0], action.last_first, strict=True)]

    def likely_orders(self, problem, placements):
        turned = torch.full((len(placements),), bool(self.turn > 0))
        return None if self.learns == "devices" else urgency(problem, turned)

    def actions_of(self, batch, placements):
        devices = super().actions_of(batch[1], placements).devices
        return Drawn(devices, torch.zeros(*devices.shape[:2], 1))

    def candidates(self, problem, count, seed):
        batch = self.stack([self.view(problem)])
        drawn = self.act(batch, count, torch.Generator().manual_seed(seed)).devices[0]
        drawn[0] = self.logits(batch[1])[0].argmax(-1)
        return drawn.numpy()


def urgency(problem, turned):
    along = np.arange(len(problem.graph), dtype=float)
    return np.where(turned.numpy()[:, None], -along, along)


class FirstUnit:
    def __init__(self, problem):
        self.devices = len(problem.cluster)

    def propose(self, plan, count, generator):
        placements = np.repeat(plan.placement[None], count, axis=0)
        placements[:, 0] = generator.integers(self.devices, size=count)
        return placements


new_policy = RepairingPolicy.new
build = partial(LearnedPlacer.with_network, RepairingPolicy, network="of_one_contract")
"""
)


BY_REINFORCE = '''"""A learned placer that exists for the length of one test."""

from functools import partial

import msgspec
import numpy as np
import torch
from torch import nn

from placers.learned.episodes import EpisodePolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.settings import EpisodeRules, Reinforce, Settings

TRAINER = "reinforce"


class Shape(msgspec.Struct, frozen=True):
    order: str = "topological"


class NumberPolicy(EpisodePolicy):
    kind = "of_one_contract"
    shape_type = Shape
    order = "topological"

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.weigh = nn.Linear(1, 1)

    def view(self, problem):
        return torch.arange(len(problem.cluster)).float()[:, None]

    def stack(self, states, views):
        return torch.stack(list(views))

    def act(self, states, generator, *, greedy=None):
        return torch.multinomial(self.weigh(states).squeeze(-1).softmax(-1), 1, generator=generator)[:, 0]

    def score(self, states, devices):
        table = self.weigh(states).squeeze(-1).log_softmax(-1)
        return table.gather(-1, devices.view(len(devices), -1)).view_as(devices), -(table.exp() * table).sum(-1)

    def candidates(self, problem, count, seed):
        return np.random.default_rng(seed).integers(len(problem.cluster), size=(count, len(problem.units)))

    def fine_tuning(self, problem, simulations):
        return Settings(reinforce=Reinforce(episodes=2, imitation=1.0), rules=EpisodeRules(start="best"))


new_policy = NumberPolicy.new
build = partial(LearnedPlacer.with_network, NumberPolicy, network="of_one_contract")
'''


@pytest.fixture(params=[BY_PPO, BY_REINFORCE, REPAIRS_AND_ORDERS], ids=["ppo", "reinforce", "repairs and orders"])
def new_folder(request: pytest.FixtureRequest) -> Iterator[str]:
    """One more learned placer, in a folder of its own."""
    FOLDER.mkdir()
    (FOLDER / "placer.py").write_text(request.param)
    importlib.invalidate_caches()
    yield NEW
    shutil.rmtree(FOLDER)
    for name in [name for name in sys.modules if name.startswith(f"placers.learned.{NEW}")]:
        del sys.modules[name]


def test_a_new_one_is_one_new_folder(new_folder: str, tmp_path: Path) -> None:
    assert new_folder in learned_placers()
    listed = Listing.of(["placers"]).entries["placers"]
    assert {"name": new_folder, "about": "A learned placer that exists for the length of one test."} in listed
    with pytest.raises(InputError, match=f"placer '{new_folder}' has no trained policy"):
        load_placer(new_folder)
    check_a_whole_life(new_folder, tmp_path)
    assert load_placer(f"{new_folder}+finetuned").place(problems()[0], budget=9).simulations <= 9


@pytest.mark.parametrize("new_folder", [REPAIRS_AND_ORDERS], indirect=True, ids=["repairs and orders"])
def test_one_that_repairs_and_orders_learns_both_and_leads_a_search(
    new_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repaired = list[bool]()
    policy = by_name.module("placers", new_folder).RepairingPolicy
    original = policy.repair

    def repair(self: Any, batch: Any, samples: int, generator: torch.Generator, plans: Any) -> Any:
        repaired.append(any(plan is not None for plan in plans))
        return original(self, batch, samples, generator, plans)

    monkeypatch.setattr(policy, "repair", repair)
    given = recipe(new_folder)
    given = replace(given, ppo=replace(given.ppo, repairs=1.0), order=OrderStage(updates=2))
    train(given, problems(), out=tmp_path / "run", loggers=())
    assert any(repaired)
    meta = load_meta(tmp_path / "run")
    assert (meta.updates, meta.order_updates) == (2, 2)
    metrics = (tmp_path / "run" / "order" / "metrics.jsonl").read_text().splitlines()
    assert len(metrics) == 2
    searched = load_placer(f"neural_lns:policy={tmp_path / 'run'}").place(problems()[1], budget=80)
    assert searched.simulations <= 80
    with pytest.raises(InputError, match="a policy of 'gdp' cannot repair plans; set ppo"):
        train(replace(recipe("gdp"), ppo=Ppo(updates=1, repairs=0.5)), problems(), out=tmp_path / "gdp")
    with pytest.raises(InputError, match="placer 'gdp' chooses no order; set order"):
        train(replace(recipe("gdp"), order=OrderStage(updates=1)), problems(), out=tmp_path / "gdp")
