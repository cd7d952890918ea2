"""What the decoder sees of the whole: components, balance, channels; and policies from before it saw that."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import IDEAL
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from placers.learned.sequential import describe_totals
from placers.learned.sequential.decoder_features import FEATURES, Feature
from placers.learned.sequential.policy import SequentialPolicy
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold
from tests.placers.test_sequential import batch_of, feature

ADDED = FEATURES[Feature.COMPONENT_HERE :]
TWO_CHAINS = toy_graph([1, 2, 4, 1], [(0, 1), (2, 3)])  # a -> b and c -> d; placed c a b d


def signed_log(value: float) -> float:
    return round(float(np.sign(value) * np.log1p(10 * abs(value))), 4)


def test_logarithms_are_those_of_the_library() -> None:
    sizes = np.exp(np.linspace(-30, 60, 2001))
    for value in [0.0, *sizes, *-sizes]:
        expected = np.sign(value) * np.log1p(10 * abs(value))
        assert describe_totals.signed_log(value) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def two_chains(order: str = "longest_path") -> Problem:
    return Problem(TWO_CHAINS, toy_cluster(2), runtime=IDEAL.with_knobs(order=order))


def test_components_of_two_chains() -> None:
    batch, placed = batch_of(two_chains()), [1, 1, 0, 0]
    assert batch.layouts[0].order.tolist() == [2, 0, 1, 3]
    assert feature(batch, "component_share", 1, placed) == [0.375, 0.375]
    assert feature(batch, "component_of_fair_share", 1, placed) == [signed_log(-0.25)] * 2, "3 s of 4 s"
    assert feature(batch, "component_here", 0, placed) == [0.0, 0.0], "nothing of it is placed"
    assert feature(batch, "component_here", 1, placed) == [0.0, 1.0]
    assert feature(batch, "component_present", 1, placed) == [0.0, 1.0]
    assert feature(batch, "component_present", 3, placed) == [1.0, 0.0]
    assert feature(batch, "component_left", 1, placed) == [0.6667, 0.6667], "2 s of 3 s"
    assert feature(batch, "component_here", 1, [0, 0, 0, 1]) == [1.0, 0.0], "the other chain does not count"


def test_balance_of_two_chains() -> None:
    batch, placed = batch_of(two_chains()), [1, 1, 0, 0]
    scale = batch.layouts[0].scale
    assert feature(batch, "lack", 1, placed) == [signed_log(0), signed_log(3 / scale)], "4 s and 1 s of 4 s"
    assert feature(batch, "lack_of_all", 1, placed) == [0.0, 1.0]
    assert feature(batch, "balance", 3, placed) == [1.0, 1.0], "1 s is left, 1 s is lacked"
    assert feature(batch, "lack", 3, [0, 0, 0, 1]) == [signed_log(-3 / scale), signed_log(4 / scale)]
    assert feature(batch, "balance", 3, [0, 0, 0, 1]) == [0.25, 0.25], "1 s is left, 4 s are lacked"


def test_an_even_share_is_what_unequal_devices_are_busy_with_if_all_end_together() -> None:
    devices = (Device("slow", "gpu", 1.0, 1.0, 100.0), Device("fast", "gpu", 2.0, 1.0, 100.0))
    cluster = Cluster("unequal", devices, np.zeros((2, 2)), np.ones((2, 2)), np.arange(4).reshape(2, 2))
    batch = batch_of(Problem(toy_graph([2, 4], []), cluster))
    totals = batch.layouts[0].totals
    assert totals.alone.tolist() == [6.0, 3.0]
    assert totals.even == pytest.approx(2.0)
    assert feature(batch, "alone", 1, [0, 0]) == [round(float(np.log(x / batch.layouts[0].scale)), 4) for x in (6, 3)]


def test_channels_count_all_that_they_carried_whoever_sends_it() -> None:
    graph = toy_graph([4, 2, 1, 1, 1], [(0, 1), (0, 2), (0, 3), (3, 4)], output_bytes=[3, 1, 1, 1, 1])
    batch, placed = batch_of(Problem(graph, toy_cluster(3))), [0, 1, 2, 0, 0]
    scale = batch.layouts[0].scale
    assert batch.layouts[0].order.tolist() == [0, 3, 1, 2, 4]
    sent = signed_log(3 / scale)
    assert feature(batch, "out_busiest", 4, placed) == [sent, 0.0, 0.0]
    assert feature(batch, "in_busiest", 4, placed) == [0.0, sent, sent]
    assert feature(batch, "out_backlog", 4, placed) == [signed_log(2 / scale), 0.0, 0.0], "7 s, and its clock is at 5 s"
    shared = batch_of(Problem(graph, toy_cluster(3, shared_out=True)))
    assert feature(shared, "out_busiest", 4, placed) == [signed_log(6 / scale), 0.0, 0.0]


def test_links_that_are_open_need_the_fastest_link_at_least() -> None:
    bandwidth = np.array([[1, 2, 4], [2, 1, 1], [4, 1, 1.0]])
    devices = tuple(Device(f"gpu:{i}", "gpu", 1.0, 1.0, 100.0) for i in range(3))
    cluster = Cluster("links", devices, np.zeros((3, 3)), bandwidth, np.arange(9).reshape(3, 3))
    batch = batch_of(Problem(toy_graph([1, 1, 1], [(0, 1), (1, 2)], output_bytes=[8, 4, 1]), cluster))
    scale = batch.layouts[0].scale
    assert feature(batch, "remaining", 1, [0, 0, 0]) == [signed_log(s / scale) for s in (1, 2, 1)], "4 bytes are open"


def test_what_is_known_of_the_problem_before_anything_is_placed() -> None:
    assert feature(batch_of(two_chains()), "longest_path", 0, [0] * 4) == [1.0, 1.0]
    assert feature(batch_of(two_chains("fifo")), "longest_path", 0, [0] * 4) == [0.0, 0.0]
    assert feature(batch_of(two_chains()), "ops_per_unit", 0, [0] * 4) == [0.0, 0.0]
    tied = toy_graph([1, 2, 4, 1], [(0, 1), (2, 3)], group=[0, 0, 1, 1])
    expected = round(float(np.log(2) / 4), 4)
    assert feature(batch_of(Problem(tied, toy_cluster(2))), "ops_per_unit", 0, [0, 1]) == [expected] * 2
    held = toy_graph([1, 1], [(0, 1)], weights=[30, 30], weight_uses=[(0, 0), (1, 1)])
    assert feature(batch_of(Problem(held, toy_cluster(2, memory=120.0))), "alone_fill", 1, [0, 0]) == [0.5, 0.5]


@settings(max_examples=examples(20, 6), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 4))
def test_shares_are_shares(seed: int, ops: int, devices: int) -> None:
    batch = batch_of(Problem(random_graph(ops, seed=seed), toy_cluster(devices, shared_out=bool(seed % 2))))
    placements = bold(seed).decode(batch, np.ones(2), np.full(2, 0.9), seed)[0][1].tolist()
    for unit in (int(batch.layouts[0].order[ops // 2]), int(batch.layouts[0].order[-1])):
        for name in ("component_here", "component_left", "component_share", "lack_of_all", "balance"):
            seen = np.array(feature(batch, name, unit, placements))
            seen = seen[np.isfinite(seen)]
            assert ((seen >= 0) & (seen <= 1 + 1e-6)).all(), name


# ---- policies from before -----------------------------------------------------------------------------------------


def saved(folder: Path, policy: SequentialPolicy, features: tuple[str, ...]) -> Path:
    """A policy as it is saved by a version that knows these features only, in this order."""
    weights = policy.state_dict()
    for name in policy.feature_weights:
        weights[name] = weights[name][:, [FEATURES.index(each) for each in features]].clone()
    save_policy(folder, weights, Meta(placer="sequential", network=NETWORK, seed=0, decoder_features=features))
    return folder


def test_features_that_a_policy_did_not_know_weigh_nothing(tmp_path: Path) -> None:
    policy = bold(1)
    before = saved(tmp_path, policy, tuple(reversed(FEATURES[: Feature.COMPONENT_HERE])))
    loaded, _ = load_policy(before, SequentialPolicy)
    for name in policy.feature_weights:
        assert torch.equal(loaded.state_dict()[name][:, : -len(ADDED)], policy.state_dict()[name][:, : -len(ADDED)])
        assert not loaded.state_dict()[name][:, -len(ADDED) :].any()


def test_weights_of_other_features_than_are_named_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, bold(1), FEATURES[:5])
    about = json.loads((tmp_path / "meta.json").read_text())
    (tmp_path / "meta.json").write_text(json.dumps(about | {"decoder_features": FEATURES[:4]}))
    with pytest.raises(InputError, match=r"not the weights of .*5 features, and 4 are named"):
        load_policy(tmp_path, SequentialPolicy)


def test_a_policy_from_before_places_as_one_that_does_not_listen_to_what_was_added(tmp_path: Path) -> None:
    policy = bold(1)
    loaded, _ = load_policy(saved(tmp_path, policy, FEATURES[: Feature.COMPONENT_HERE]), SequentialPolicy)
    with torch.no_grad():
        for name in policy.feature_weights:
            policy.get_parameter(name)[:, Feature.COMPONENT_HERE :] = 0
    for seed in range(5):
        problem = Problem(random_graph(24, seed), toy_cluster(3, shared_out=True))
        assert loaded.candidates(problem, 3, 0).tolist() == policy.candidates(problem, 3, 0).tolist()
