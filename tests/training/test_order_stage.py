"""The last stage of a training: the order head learns alone, after a policy that places as it would have without it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO
from placers.learned.policy_file import load_policy
from placers.learned.policy_meta import load_meta
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.interruption import stopped_after
from tests.training.metrics_lines import metrics_lines
from tests.training.small_problems import NETWORK as SMALL
from tests.training.small_problems import PROBLEMS
from training.recipe import OrderStage, Recipe, Validation
from training.runs.run_folder import RunFolder
from training.runs.train import train

NETWORK = f"{SMALL},one_device=true"
PLACING = Recipe(
    placer="sequential",
    network=NETWORK,
    problems=PROBLEMS,
    validation=Validation(every=2, problems=3, averaging=0.5),
    ppo=Ppo(updates=4, problems_per_update=3, samples=4, reward="log", learning_rate=1e-2),
)
ORDERING = replace(PLACING, network=f"{NETWORK},orders=true", order=OrderStage(updates=7))


@pytest.fixture(scope="module")
def ordering(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a run with the stage, and its policy."""
    folder = tmp_path_factory.mktemp("ordering")
    return folder, train(ORDERING, out=folder, seed=3).policy


def of_head(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in state.items() if name.startswith("order_head.")}


def learned(policy: Any) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = policy.state_dict()
    return state


def test_the_policy_places_as_without_the_stage_and_its_head_has_learned(
    ordering: tuple[Path, Any], tmp_path: Path
) -> None:
    placing, both = learned(train(PLACING, out=tmp_path, seed=3).policy), learned(ordering[1])
    assert placing.keys() | of_head(both).keys() == both.keys()
    assert all(torch.equal(both[name], weight) for name, weight in placing.items())
    new = of_head(SequentialPolicy.new(ORDERING.network, 3).state_dict())
    assert any(not torch.equal(both[name], weight) for name, weight in new.items())
    assert (tmp_path / "validation.jsonl").read_bytes() == (ordering[0] / "validation.jsonl").read_bytes()
    assert metrics_lines(tmp_path) == metrics_lines(ordering[0])


def test_a_run_says_how_long_it_learned_to_order(ordering: tuple[Path, Any]) -> None:
    folder, _ = ordering
    meta = load_meta(folder)
    assert (meta.updates, meta.order_updates, meta.simulations) == (4, 7, (4 + 7) * 3 * 4)
    lines = [json.loads(line) for line in (folder / "order" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == list(range(1, 8))
    assert "4 updates by PPO, then 7 of its order head alone" in (folder / "card.md").read_text()


@pytest.mark.parametrize(("update", "updates"), [(3, 4), (6, 7)], ids=["placing", "ordering"])
def test_what_is_stopped_resumes_to_the_same_end(
    update: int, updates: int, ordering: tuple[Path, Any], tmp_path: Path
) -> None:
    (whole, _), parts = ordering, tmp_path / "parts"
    stopped = ORDERING if updates == 7 else replace(ORDERING, order=OrderStage(updates=2))
    with stopped_after(update, updates):
        train(stopped, out=parts, seed=3)
    if updates == 4:
        (parts / "config.toml").write_text(ORDERING.to_toml())
    train(ORDERING, out=parts, seed=3, resume=True)
    for file in ("policy.safetensors", "trainer.safetensors"):
        assert (whole / file).read_bytes() == (parts / file).read_bytes()
    for stage in (".", "order"):
        assert metrics_lines(whole / stage) == metrics_lines(parts / stage)


def test_the_stage_of_an_earlier_run_is_not_taken_up(tmp_path: Path) -> None:
    stale = tmp_path / "order" / "trainer.safetensors"
    stale.parent.mkdir()
    stale.touch()
    RunFolder(tmp_path).start(ORDERING, "")
    assert not stale.exists()


def test_samples_are_orders_of_one_placement_and_the_head_alone_learns_from_them() -> None:
    policy = SequentialPolicy.new(ORDERING.network, 0)
    policy.learn("order")
    given = [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in (9, 12)]
    batch = policy.stack([policy.view(problem) for problem in given])
    action = policy.act(batch, 5, torch.Generator().manual_seed(0))
    assert action.devices.shape == (2, 5, 12)
    assert torch.equal(action.devices, action.devices[:, :1].expand(-1, 5, -1))
    orders = policy.drawn_orders(batch, action)
    assert all(order is not None and len({row.tobytes() for row in order}) == 5 for order in orders)
    scores = policy.score(batch, action)
    assert torch.equal(scores.of_devices, batch.parts.mask)
    scores.log_probability.sum().backward()  # type: ignore[no-untyped-call]
    moved = {name for name, weight in policy.named_parameters() if weight.grad is not None}
    assert moved == {f"order_head.{name}" for name, _ in policy.order_head.named_parameters()}  # type: ignore[union-attr]


def test_while_it_learns_to_place_ops_run_by_the_rule() -> None:
    policy, problem = SequentialPolicy.new(ORDERING.network, 0), Problem(random_graph(9, seed=9), toy_cluster(2))
    policy.learn("devices")
    batch = policy.stack([policy.view(problem)])
    action = policy.act(batch, 3, torch.Generator().manual_seed(0))
    assert policy.drawn_orders(batch, action) == [None]
    assert policy.likely_orders(problem, action.devices[0].numpy()) is None


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (replace(ORDERING, network=NETWORK), "only a network with orders=true learns an order"),
        (Recipe(order=OrderStage(updates=1)), "placer 'gdp' chooses no order; set order.updates to 0"),
        (
            replace(ORDERING, problems=replace(ORDERING.problems, order=FIFO.name)),
            "an order departs from 'longest_path'; set problems.order to that",
        ),
    ],
)
def test_what_cannot_learn_an_order_is_refused_first(recipe: Recipe, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(recipe, out=tmp_path / "run", seed=0)
    assert not (tmp_path / "run").exists()


def test_other_trainers_have_no_such_stage() -> None:
    with pytest.raises(InputError, match=r"\[order\] says nothing to placer 'placeto'; remove that section"):
        Recipe(placer="placeto", network="placeto", order=OrderStage(updates=1))


def test_a_loaded_policy_orders_as_it_learned(ordering: tuple[Path, Any]) -> None:
    folder, trained = ordering
    policy, problem = load_policy(folder, SequentialPolicy)[0], Problem(random_graph(12, seed=1), toy_cluster(2))
    placements = policy.candidates(problem, 2, 0)
    found = [each.likely_orders(problem, placements) for each in (policy, trained)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].tobytes() == found[1].tobytes()
