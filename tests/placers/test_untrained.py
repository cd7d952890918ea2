"""A policy that has not been trained, or has come to nothing in training, does not answer as if it had."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from evaluation.commands.load_placer import load_placer
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.lookup import learned_placers, placer_of
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from placers.learned.sequential.policy import SequentialPolicy
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import stand_in

PROBLEM = Problem(random_graph(8, seed=2), toy_cluster(2))
POLICIES = learned_placers()


@pytest.mark.parametrize("name", POLICIES)
def test_without_a_trained_policy_the_remedy_is_named(name: str) -> None:
    remedy = f"{name}:checkpoint=RUN .*'default'.*; {name}:untrained=yes places at random"
    for spec in (name, f"{name}:samples=2"):
        with pytest.raises(InputError, match=f"placer '{name}' has no trained policy; give {remedy}"):
            load_placer(spec)
    with pytest.raises(InputError, match="has no trained policy"):
        by_name.build("placers", f"annealing:policy={name}").place(PROBLEM, budget=3)


@pytest.mark.parametrize("name", POLICIES)
def test_an_untrained_one_is_made_on_request_and_its_name_says_so(name: str) -> None:
    placer = load_placer(f"{name}:untrained=yes")
    assert placer.name == f"{name}:untrained=yes"
    placer.place(PROBLEM, budget=2).plan.check(PROBLEM)
    assert load_placer(f"{name}:untrained=yes+finetuned").place(PROBLEM, budget=0).simulations == 0
    with pytest.raises(InputError, match=f"{name}: give checkpoint=runs/x or untrained=yes, and not both"):
        load_placer(f"{name}:checkpoint=runs/x,untrained=yes")


@pytest.mark.parametrize("name", POLICIES)
def test_learning_from_scratch_needs_simulations(name: str) -> None:
    tuner = load_placer(f"{name}:samples=3+finetuned")
    assert tuner.name == f"{name}:samples=3+finetuned"
    tuner.place(PROBLEM, budget=5).plan.check(PROBLEM)
    with pytest.raises(InputError, match="learns from scratch by simulating placements, and its budget is 0"):
        tuner.place(PROBLEM, budget=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused(value: float, tmp_path: Path) -> None:
    run = stand_in(tmp_path / "run")
    weights = load_file(run / "policy.safetensors")
    weights[min(weights)].view(-1)[0] = value
    save_file(weights, run / "policy.safetensors")
    for spec in (str(run), f"sequential:checkpoint={run}", f"{run}+finetuned"):
        with pytest.raises(InputError, match=r"policy.safetensors: the policy's weights are not finite.*train again"):
            load_placer(spec)


@pytest.mark.parametrize("name", POLICIES)
def test_weights_so_large_that_nothing_can_be_computed_place_nothing(name: str, tmp_path: Path) -> None:
    network = {"gdp": "graphsage_transformer", "colocrl": "colocrl:devices=2", "hdp": "hdp:devices=2"}.get(name, name)
    policy = by_name.module("placers", name).new_policy(network, 0)
    weights: dict[str, Any] = {key: torch.full_like(value, 1e30) for key, value in policy.state_dict().items()}
    meta = Meta(placer=name, network=network, seed=0, decoder_features=policy.decoder_features)
    save_policy(tmp_path, weights, meta)
    with pytest.raises(InputError, match="outputs are not finite numbers"):
        placer_of(str(tmp_path)).place(PROBLEM, budget=1)


def test_a_folder_for_a_placer_that_has_no_policy_is_refused(tmp_path: Path) -> None:
    save_policy(tmp_path, SequentialPolicy.new("sequential", 0).state_dict(), Meta(placer="metis", network="x", seed=0))
    with pytest.raises(InputError, match=r"meta.json: 'metis' is no placer that acts with a policy"):
        placer_of(str(tmp_path))


@pytest.mark.parametrize(
    "content", [b'{"schema": "placelab.policy\xff"}', b'{"a":' * 200_000, b"[]", b'{"schema": 3}', b""]
)
def test_a_damaged_meta_file_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    run = stand_in(tmp_path / "run")
    (run / "meta.json").write_bytes(content)
    for spec in (str(run), f"sequential:checkpoint={run}"):
        with pytest.raises(InputError, match=r"meta.json"):
            placer_of(spec)
