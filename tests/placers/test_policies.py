"""Policies: what they see, how they draw placements, and how they are kept on disk."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from envs.costs.cost_models.roofline import build as roofline
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.features import DEVICE_FEATURES, UNIT_FEATURES, Observation, observe
from placers.learned.gdp.placer import build as build_gdp
from placers.learned.gdp.policy import OneShotPolicy, candidates, made_to_fit
from placers.learned.policy import Scores
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

NETWORK = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"


def seen(graph: OpGraph, cluster: Cluster) -> Observation:
    problem = Problem(graph, cluster)
    return observe(problem, roofline().costs(problem))


def column(observation: Observation, name: str) -> list[float]:
    values = observation.units[:, UNIT_FEATURES.index(name)]
    return [round(float(value), 4) for value in values]


def test_features_of_a_diamond() -> None:
    diamond = seen(toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)]), toy_cluster(2))
    assert column(diamond, "earliest_start") == [0.0, 0.2, 0.2, 0.8]
    assert column(diamond, "longest_remaining") == [1.0, 0.8, 0.8, 0.2]
    assert column(diamond, "slack") == [0.0] * 4
    assert column(diamond, "work_before") == [0.0625, 0.3125, 0.6875, 0.9375], "equal branches are distinguished"
    assert diamond.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert diamond.devices[:, DEVICE_FEATURES.index("centre")].tolist() == [0.25, 0.75]


def test_steps_of_a_layer_share_their_place_among_modules() -> None:
    # two layers unrolled over two steps: a, b are layer 0 and c, d layer 1; a -> b, a -> c, b -> d, c -> d
    uses = [(0, 0), (1, 0), (2, 1), (3, 1)]
    net = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], weights=[4, 4], weight_uses=uses)
    assert column(seen(net, toy_cluster(2)), "module_work_before") == [0.25, 0.25, 0.75, 0.75]


def test_features_are_finite_where_there_is_nothing_to_pay_and_nothing_to_hold() -> None:
    idle = toy_graph([0, 0], [], output_bytes=[0, 0])
    for cluster in (toy_cluster(1), toy_cluster(3, memory=0.0)):
        observation = seen(idle, cluster)
        for values in (observation.units, observation.devices, observation.pairs):
            assert np.isfinite(values).all()


def test_samples_follow_the_probabilities() -> None:
    policy = OneShotPolicy.new(NETWORK, seed=1)
    batch = Batch.of([seen(random_graph(5, seed=0), toy_cluster(3))])
    drawn = policy.act(batch, 20_000, torch.Generator().manual_seed(0)).devices[0]
    frequency = torch.nn.functional.one_hot(drawn, 3).double().mean(0)
    torch.testing.assert_close(frequency, policy.logits(batch)[0].softmax(-1).double(), atol=0.02, rtol=0)


def test_actions_can_be_made_of_placements() -> None:
    policy = OneShotPolicy.new(NETWORK, seed=1)
    batch = Batch.of([seen(random_graph(5, seed=0), toy_cluster(3)), seen(random_graph(3, seed=1), toy_cluster(2))])
    actions = policy.actions_of(batch, [np.array([2, 0, 1, 1, 2]), np.array([1, 0, 1])])
    assert actions.devices.tolist() == [[[2, 0, 1, 1, 2]], [[1, 0, 1, 0, 0]]]
    assert torch.isfinite(policy.score(batch, actions).log_probability).all()


def test_scores_are_those_of_the_distribution() -> None:
    policy = OneShotPolicy.new(NETWORK, seed=1)
    batch = Batch.of([seen(random_graph(5, seed=0), toy_cluster(3)), seen(random_graph(3, seed=1), toy_cluster(2))])
    action = policy.act(batch, 4, torch.Generator().manual_seed(0))
    scores = policy.score(batch, action)
    logits = policy.logits(batch)
    probabilities = logits[1, :3, :2].softmax(-1)
    chosen = probabilities[torch.arange(3), action.devices[1, 2, :3]]
    torch.testing.assert_close(scores.log_probability[1, 2, :3], chosen.log())
    torch.testing.assert_close(scores.entropy[1, :3], -(probabilities * probabilities.log()).sum(-1))
    assert not scores.entropy[1, 3:].any(), "padded units have no entropy"
    assert not scores.log_probability[1, :, 3:].any(), "padded units have no probability"


def test_decisions_of_the_order_are_the_last_ones_and_none_of_devices() -> None:
    units, order = torch.tensor([[True, True, True], [True, False, False]]), torch.tensor([[True, True], [True, False]])
    of_units = Scores(torch.zeros(2, 4, 3), torch.ones(2, 3), units)
    assert torch.equal(of_units.of_devices, units)
    both = of_units.with_order(torch.ones(2, 4, 2), order)
    assert torch.equal(both.mask, torch.cat([units, order], 1))
    assert torch.equal(both.of_devices, torch.cat([units, torch.zeros(2, 2, dtype=torch.bool)], 1))


def test_a_policy_survives_the_disk(tmp_path: Path) -> None:
    policy = OneShotPolicy.new(NETWORK, seed=5)
    save_policy(tmp_path, policy.state_dict(), Meta(placer="gdp", network=NETWORK, seed=7))
    loaded, meta = load_policy(tmp_path, OneShotPolicy)
    assert meta.seed == 7
    batch = Batch.of([seen(random_graph(6, seed=0), toy_cluster(2))])
    assert torch.equal(policy.logits(batch), loaded.logits(batch))
    problem = Problem(random_graph(6, seed=0), toy_cluster(2))
    placed = build_gdp(checkpoint=str(tmp_path), samples=1).place(problem)
    assert placed.simulations == 0
    assert placed.plan.placement.tolist() == policy.logits(batch)[0].argmax(-1).tolist()


def test_more_samples_never_choose_worse() -> None:
    problem = Problem(random_graph(20, seed=3), toy_cluster(3, memory=1000.0))
    placer = build_gdp(network=NETWORK, untrained=True)
    seconds = [simulate(problem, placer.place(problem, budget=budget).plan).step_seconds for budget in (1, 8, 64)]
    assert seconds[0] >= seconds[1] >= seconds[2]


def test_a_folder_that_holds_no_policy_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no policy \(meta.json is missing\); train one"):
        build_gdp(checkpoint=str(tmp_path))
    save_policy(tmp_path, OneShotPolicy.new(NETWORK, seed=0).state_dict(), Meta(placer="gdp", network=NETWORK, seed=0))
    meta = json.loads((tmp_path / "meta.json").read_text())
    for change, sentence in (
        ({"version": 99}, "written as version 99, this placelab reads version 1"),
        ({"unit_features": ["work"]}, "trained on other unit features"),
        ({"strange": 1}, "unknown key 'strange'"),
        ({"network": "graphsage_transformer:width=32"}, "not the weights of"),
    ):
        (tmp_path / "meta.json").write_text(json.dumps(meta | change))
        with pytest.raises(InputError, match=sentence):
            load_policy(tmp_path, OneShotPolicy)
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "policy.safetensors").write_bytes(b"not weights")
    with pytest.raises(InputError, match="not the weights of"):
        load_policy(tmp_path, OneShotPolicy)


def test_what_a_file_of_weights_lacks_is_named(tmp_path: Path) -> None:
    fine = OneShotPolicy.new(NETWORK, seed=0).state_dict()
    first, second, *_ = fine
    for change, sentence in (
        ({name: fine[name] for name in fine if name != first}, rf"policy.safetensors: .* \(it lacks '{first}'\)"),
        ({name: fine[name] for name in fine if name not in (first, second)}, "it lacks '.*' and 1 more"),
        (fine | {"more": torch.zeros(1)}, "it also has 'more'"),
        (fine | {first: torch.zeros(3, 5)}, rf"'{first}' is 3 x 5 and not "),
    ):
        save_policy(tmp_path, change, Meta(placer="gdp", network=NETWORK, seed=0))
        with pytest.raises(InputError, match=sentence):
            load_policy(tmp_path, OneShotPolicy)
    (tmp_path / "policy.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n")
    with pytest.raises(InputError, match=r"policy.safetensors is a pointer of Git LFS .* `git lfs pull`"):
        load_policy(tmp_path, OneShotPolicy)


def test_a_placement_that_overflows_is_repaired_by_preference() -> None:
    graph = toy_graph([1, 1, 1], [], weights=[6, 6, 6], weight_uses=[(0, 0), (1, 1), (2, 2)])
    held = HeldMemory.of(Problem(graph, toy_cluster(3, memory=10.0)))
    preferred = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 1.0, 2.0]])
    assert made_to_fit(np.array([0, 0, 0]), preferred, held, share=1.0).tolist() == [0, 1, 2]
    assert made_to_fit(np.array([2, 1, 0]), preferred, held, share=1.0).tolist() == [2, 1, 0], "it fits as it is"
    assert made_to_fit(np.array([0, 0, 0]), preferred, held, share=0.5).tolist() == [0, 1, 2], "nothing has room"


def test_candidates_begin_with_the_most_likely_and_grow_bolder() -> None:
    held = HeldMemory.of(Problem(random_graph(200, seed=0), toy_cluster(2, memory=1e6)))
    logits = torch.tensor([4.0, 0.0]).expand(200, 2)
    drawn = candidates(logits, held, 9, torch.Generator().manual_seed(0))
    assert not drawn[0].any()
    assert drawn[1].sum() < drawn[5].sum() < drawn[8].sum()
    assert candidates(logits, held, 1, torch.Generator()).tolist() == [[0] * 200]


def test_a_new_policy_leans_to_a_split_of_the_modules_in_order() -> None:
    chain = toy_graph([1] * 8, [(i, i + 1) for i in range(7)], weights=[1] * 8, weight_uses=[(i, i) for i in range(8)])
    logits = OneShotPolicy.new("graphsage_transformer", seed=0).logits(Batch.of([seen(chain, toy_cluster(4))]))[0]
    assert logits.argmax(-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
