"""The sequential decoder: its roll-out and its network agree, and it may only choose what makes sense."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.equal_devices import interchangeable
from placers.learned.gdp.placer import build as build_gdp
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from placers.learned.sequential.action import SequentialAction, SequentialBatch
from placers.learned.sequential.decoder_features import FEATURES
from placers.learned.sequential.encoder import attend
from placers.learned.sequential.one_device import one_device
from placers.learned.sequential.placer import build
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.rollout import _draw, roll_out
from placers.learned.sequential.state import FILLED, GIVEN, Rollouts, RolloutState, Sampling, ScoreLayers
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold


def batch_of(*problems: Problem) -> SequentialBatch:
    policy = SequentialPolicy.new(NETWORK, 0)
    return policy.stack([policy.view(problem) for problem in problems])


def drawn(policy: SequentialPolicy, batch: SequentialBatch, samples: int, seed: int = 0) -> SequentialAction:
    return policy.act(batch, samples, torch.Generator().manual_seed(seed))


def first_pass(policy: SequentialPolicy, problem: Problem, samples: int, seed: int = 0) -> Ints:
    """(samples, units) devices that a policy draws when there was no pass before."""
    placements: Ints = policy.decode(batch_of(problem), np.ones(samples), np.full(samples, 0.9), seed)[0]
    return placements


def feature(
    batch: SequentialBatch, name: str, unit: int, placements: list[int], before: list[int] | None = None
) -> list[float]:
    """What the decoder sees of every device when the unit is placed, the others being placed so."""
    given, earlier = torch.tensor([[placements]]), torch.tensor([[before or [-1] * len(placements)]])
    trace = SequentialPolicy.new(NETWORK, 0).follow(batch, given, earlier).trace
    of_unit = trace.states == unit
    seen: Floats = np.full(len(batch.layouts[0].limits), np.nan)
    seen[trace.devices[of_unit]] = trace.features[of_unit][:, FEATURES.index(name)]
    return [round(float(value), 4) for value in seen]


@settings(max_examples=examples(25, 10), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 5), st.sampled_from((20.0, 1e3, 1e9)))
def test_the_roll_out_and_the_network_agree_on_probabilities(seed: int, ops: int, devices: int, memory: float) -> None:
    small = Problem(random_graph(5, seed=seed), toy_cluster(2, latency=0.5))
    batch = batch_of(Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=memory)), small)
    policy = bold(seed)
    action = drawn(policy, batch, 4, seed)
    scores = policy.score(batch, action)
    rolled_out = action.trace.log_probability.float()
    decided = scores.log_probability[:, :, : rolled_out.shape[2]]
    torch.testing.assert_close(decided, rolled_out, atol=1e-5, rtol=1e-5)
    assert not scores.log_probability[:, :, rolled_out.shape[2] :].any(), "the pass before was no decision"
    assert (scores.log_probability > -1e6).all(), "nothing forbidden was drawn"
    assert torch.isfinite(scores.entropy).all()


def test_following_given_placements_sees_what_was_seen_when_they_were_drawn() -> None:
    batch = batch_of(
        Problem(random_graph(15, seed=1), toy_cluster(3)), Problem(random_graph(9, seed=2), toy_cluster(2))
    )
    policy = bold()
    action = drawn(policy, batch, 3)
    again = policy.follow(batch, action.devices, action.earlier)
    assert_equal(action, again)


def assert_equal(one: SequentialAction, other: SequentialAction) -> None:
    """Both decide the same and saw the same."""
    assert torch.equal(one.devices, other.devices)
    assert torch.equal(one.earlier, other.earlier)
    for part in fields(one.trace):
        assert torch.equal(getattr(one.trace, part.name), getattr(other.trace, part.name)), part.name


def test_two_actions_joined_are_what_would_be_seen_if_they_were_followed_together() -> None:
    batch = batch_of(*(Problem(random_graph(ops, seed=ops), toy_cluster(count)) for ops, count in ((15, 3), (9, 2))))
    policy = bold()
    both = drawn(policy, batch, 3, seed=1).cat(drawn(policy, batch, 2, seed=2))
    together = policy.follow(batch, both.devices, both.earlier)
    assert torch.equal(both.trace.only, together.trace.only)
    assert torch.equal(both.trace.log_probability, together.trace.log_probability)
    one, other = policy.score(batch, both), policy.score(batch, together)
    torch.testing.assert_close(one.log_probability, other.log_probability)
    torch.testing.assert_close(one.entropy, other.entropy)


def test_samples_follow_the_probabilities() -> None:
    batch = batch_of(Problem(random_graph(3, seed=0), toy_cluster(2)))
    policy = bold()
    action = drawn(policy, batch, 20_000)
    likelihood = policy.score(batch, action).log_probability[0].detach().sum(-1).exp()
    codes = action.devices[0].numpy() @ [4, 2, 1]
    for code in np.unique(codes):
        here = codes == code
        assert float(likelihood[here.argmax()]) == pytest.approx(here.mean(), abs=0.02)


def test_equal_seeds_draw_equally_and_others_do_not() -> None:
    batch = batch_of(Problem(random_graph(20, seed=1), toy_cluster(3)))
    one, same, other = (drawn(bold(), batch, 4, seed).devices for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_of_empty_devices_alike_only_the_first_is_a_choice() -> None:
    problem = Problem(random_graph(10, seed=1), toy_cluster(4))
    for sample in first_pass(bold(), problem, 50)[:, batch_of(problem).layouts[0].order]:
        devices, first_use = np.unique(sample, return_index=True)
        assert devices.tolist() == list(range(len(devices)))
        assert (np.diff(first_use) > 0).all()


def test_devices_are_interchangeable_only_if_that_has_no_effect() -> None:
    seconds = np.ones((3, 4))
    assert interchangeable(toy_cluster(4), seconds).tolist() == [0, 0, 0, 0]
    assert interchangeable(toy_cluster(4, shared_out=True), seconds).tolist() == [0, 0, 0, 0]
    seconds[1, 2] = 2.0
    assert interchangeable(toy_cluster(4), seconds).tolist() == [0, 0, 2, 0]
    bandwidth = np.ones((4, 4))
    bandwidth[:2, :2] = bandwidth[2:, 2:] = 9.0  # two servers of two
    devices = tuple(Device(f"gpu:{i}", "gpu", 1.0, 1.0, 100.0) for i in range(4))
    servers = Cluster("servers", devices, np.zeros((4, 4)), bandwidth, np.arange(16).reshape(4, 4))
    assert interchangeable(servers, np.ones((3, 4))).tolist() == [0, 0, 2, 2]


def test_devices_without_room_are_masked_while_another_has_some() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)], weights=[60, 30, 60], weight_uses=[(0, 0), (1, 1), (2, 2)])
    problem = Problem(graph, toy_cluster(2, memory=101.0))
    for seed in range(5):
        placements = first_pass(bold(seed), problem, 20, seed)
        assert not HeldMemory.of(problem).overflow(placements[0])
        assert (placements[:, 0] != placements[:, 2]).all()


def test_units_are_placed_only_where_they_may_run_though_devices_are_alike() -> None:
    graph = replace(random_graph(12, seed=1), devices=tuple((f"gpu:{i % 3}",) if i % 4 else () for i in range(12)))
    problem = Problem(graph, toy_cluster(3, memory=1e9))
    assert problem.allowed is not None
    placements = first_pass(bold(0), problem, 16)
    assert problem.allowed[np.arange(placements.shape[1]), placements].all()
    assert one_device(batch_of(problem).layouts[0]) == -1, "none may run everything"


def test_units_are_placed_by_longest_remaining_path_or_topologically() -> None:
    graph = toy_graph([1, 1, 5, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    problem = Problem(graph, toy_cluster(2))
    assert batch_of(problem).layouts[0].order.tolist() == [0, 2, 1, 3]
    topological = SequentialPolicy.new(f"{NETWORK},order=topological", 0)
    assert topological.view(problem)[1].order.tolist() == [0, 1, 2, 3]


def test_features_of_a_diamond() -> None:
    batch = batch_of(Problem(toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)]), toy_cluster(2)))
    assert batch.layouts[0].order.tolist() == [0, 1, 2, 3]
    assert feature(batch, "empty", 2, [0, 0, 1, 1]) == [0.0, 1.0]
    assert feature(batch, "inputs_made", 3, [0, 0, 1, 1]) == [0.5, 0.5]
    assert feature(batch, "inputs_made", 2, [0, 0, 1, 1]) == [1.0, 0.0]
    assert feature(batch, "critical", 3, [0, 0, 1, 1]) == [0.0, 1.0], "the right branch ends last"
    assert feature(batch, "critical", 2, [0, 0, 1, 1]) == [1.0, 0.0]
    scale = batch.layouts[0].scale
    later = np.log1p(10 * 2 / scale)  # on the first device it waits for both branches, 7 s; on the other 1 s to 5 s
    assert feature(batch, "finish", 2, [0, 0, 1, 1]) == [round(float(later), 4), 0.0]
    rank = batch.layouts[0].rank  # of units 0 and 1, which end after 1 s and 4 s, the second one's path ends later
    delays = np.array([7 - 3 + rank[2], 5 - 3 + rank[2]]) - max(1 - 1 + rank[0], 4 - 3 + rank[1])
    signed = np.sign(delays) * np.log1p(10 * abs(delays) / scale)
    assert feature(batch, "delay", 2, [0, 0, 1, 1]) == [round(float(x), 4) for x in signed]
    assert feature(batch, "latest", 2, [0, 0, 1, 1]) == [1.0, 0.0]
    assert feature(batch, "cut", 1, [0, 0, 1, 1]) == [0.0, round(float(np.log1p(10 / scale)), 4)]


def test_a_later_pass_sees_where_what_is_not_placed_yet_was_before() -> None:
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    batch = batch_of(Problem(graph, toy_cluster(2, memory=1e6)))
    now, before = [0, 0, 1, 1], [1, 0, 1, 0]
    assert feature(batch, "before", 1, now, before) == [1.0, 0.0]
    assert feature(batch, "again", 1, now, before) == [1.0, 1.0]
    assert feature(batch, "linked_ahead", 1, now, before) == [0.5, 0.0], "half of its links lead to the last unit"
    layout = batch.layouts[0]
    assert feature(batch, "cut_ahead", 1, now, before) == [0.0, round(float(np.log1p(10 / layout.scale)), 4)]
    assert feature(batch, "cut_in_all", 1, now, before) == [0.0, round(float(np.log1p(20 / layout.scale)), 4)]
    loads = layout.unit_seconds[:, 0] @ np.array([[1, 1, 0, 1], [0, 1, 1, 0]]).T  # where it is now, or was
    signed = [np.sign(x) * np.log1p(10 * abs(x)) for x in loads / layout.fair - 1]
    assert feature(batch, "load_ahead", 1, now, before) == [round(float(x), 4) for x in signed]
    assert feature(batch, "again", 1, now) == [0.0, 0.0]
    assert feature(batch, "load_ahead", 1, now) == [0.0, 0.0]


@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(2, 4))
@settings(max_examples=examples(20, 8), deadline=None)
def test_memory_ahead_is_what_the_pass_before_leaves_to_the_last_unit(seed: int, ops: int, devices: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=1e4))
    batch = batch_of(problem)
    before = first_pass(bold(seed), problem, 2, seed)[1].tolist()
    first = int(batch.layouts[0].order[0])
    held = HeldMemory.of(problem)
    for device, seen in enumerate(feature(batch, "room_ahead", first, before, before)):
        moved = [*before]
        moved[first] = device
        if np.isfinite(seen):
            full = held.on_devices(np.array(moved))[device]
            assert seen == pytest.approx(FILLED - full / held.limits[device], abs=1e-3)


def test_features_are_finite_where_there_is_nothing_to_pay_and_nothing_to_hold() -> None:
    idle = toy_graph([0, 0], [(0, 1)], output_bytes=[0, 0])
    for cluster in (toy_cluster(2, memory=0.0), toy_cluster(3, memory=1e12)):
        batch = batch_of(Problem(idle, cluster))
        policy = bold()
        assert torch.isfinite(drawn(policy, batch, 2).trace.features).all()


@pytest.mark.parametrize("before", [-1, 0])
def test_every_feature_is_written_in_every_pass(before: int) -> None:
    problem = Problem(random_graph(6, seed=1), toy_cluster(3))
    layout = batch_of(problem).layouts[0]
    units, width = len(layout.order), 4
    layers = ScoreLayers(
        state=np.zeros((units, width), np.float32),
        first=np.zeros((len(FEATURES), width), np.float32),
        second=np.zeros((width, 2), np.float32),
        bias=np.zeros(2, np.float32),
        out=np.zeros(2, np.float32),
        skip=np.zeros(len(FEATURES), np.float32),
    )
    sampling = Sampling.of(GIVEN, np.zeros((1, units)), np.full((1, units), before))
    rollouts = Rollouts.room_for(layout, 1, keep=True)
    rollouts.features[:] = np.nan
    roll_out(layout, layers, sampling, RolloutState.room_for(layout, layers), rollouts)
    seen = rollouts.features[rollouts.allowed & (rollouts.allowed.sum(axis=2, keepdims=True) > 1)]
    assert len(seen), "some units have a choice"
    assert not [name for index, name in enumerate(FEATURES) if np.isnan(seen[:, index]).any()]


def test_a_device_is_drawn_as_often_as_its_score_says() -> None:
    """In proportion to exp(score / temperature), among those that are allowed."""
    score, allowed, temperature = np.array([0.5, 3.0, -1.0, 1.5]), np.array([True, False, True, True]), 0.7
    uniforms = (np.arange(10_000) + 0.5) / 10_000
    drawn = [_draw(score, allowed, uniform, temperature) for uniform in uniforms.tolist()]
    weights = np.exp(score / temperature) * allowed
    assert np.bincount(drawn, minlength=4) / 10_000 == pytest.approx(weights / weights.sum(), abs=1e-3)


def test_large_problems_attend_within_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True).eval()
    embedding = torch.randn(13, 8)
    whole = attend(layer, embedding, [10, 3])
    torch.testing.assert_close(whole[:10], layer(embedding[None, :10])[0])
    torch.testing.assert_close(whole[10:], layer(embedding[None, 10:])[0])
    monkeypatch.setattr("placers.learned.sequential.encoder.SEGMENT", 4)
    parts = attend(layer, embedding, [10, 3])
    assert not torch.allclose(parts[:10], whole[:10], atol=1e-3)
    torch.testing.assert_close(parts[4:8], layer(embedding[None, 4:8])[0])
    torch.testing.assert_close(parts[8:10], layer(embedding[None, 8:10])[0])
    torch.testing.assert_close(parts[10:], layer(embedding[None, 10:])[0])


class Asked(SequentialPolicy):
    """Notes for how many units it is asked for an order."""

    def __init__(self) -> None:
        self.units: list[int] = []

    def likely_orders(self, problem: Problem, placements: Ints) -> Floats:
        """None in particular."""
        self.units.append(len(problem.units))
        return np.zeros((len(placements), len(problem.graph)))


def test_only_what_is_too_large_is_ordered_by_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, asked = Problem(random_graph(300, seed=1), toy_cluster(2)), Asked()
    build(untrained=True).orders(asked, problem, np.zeros((1, 300), np.int64))
    for module in ("placer", "coarse"):
        monkeypatch.setattr(f"placers.learned.sequential.{module}.MOST_UNITS", 100)
    build(untrained=True).orders(asked, problem, np.zeros((1, 300), np.int64))
    build(untrained=True, groups=0).orders(asked, problem, np.zeros((1, 300), np.int64))
    assert asked.units == [300, 100, 300]


def test_more_samples_never_choose_worse() -> None:
    problem = Problem(random_graph(20, seed=3), toy_cluster(3, memory=1000.0))
    seconds = [
        Simulator(problem)
        .run(build(network=NETWORK, untrained=True).place(problem, budget=budget).plan.placement)
        .step_seconds
        for budget in (1, 8, 64)
    ]
    assert seconds[0] >= seconds[-1]
    assert build(network=NETWORK, untrained=True).place(problem, budget=1).simulations == 0


def test_a_policy_survives_the_disk_and_is_not_taken_for_another(tmp_path: Path) -> None:
    policy = bold(5)
    about = Meta(placer="sequential", network=NETWORK, seed=7, decoder_features=FEATURES)
    save_policy(tmp_path, policy.state_dict(), about)
    loaded, meta = load_policy(tmp_path, SequentialPolicy)
    assert meta.seed == 7
    assert all(torch.equal(loaded.state_dict()[key], value) for key, value in policy.state_dict().items())
    assert build(checkpoint=str(tmp_path)).name == f"sequential:checkpoint={tmp_path}"
    with pytest.raises(InputError, match="holds a policy of 'sequential', not of 'gdp'; use sequential:checkpoint="):
        build_gdp(checkpoint=str(tmp_path))
    stored = json.loads((tmp_path / "meta.json").read_text())
    (tmp_path / "meta.json").write_text(json.dumps(stored | {"decoder_features": ["loudness"]}))
    with pytest.raises(InputError, match="trained on other decoder features"):
        load_policy(tmp_path, SequentialPolicy)
    other = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"
    save_policy(tmp_path, OneShotPolicy.new(other, seed=0).state_dict(), Meta(placer="gdp", network=other, seed=0))
    with pytest.raises(InputError, match="holds a policy of 'gdp', not of 'sequential'"):
        build(checkpoint=str(tmp_path))


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("graphsage_transformer", "has the network 'sequential' and no other"),
        ("sequential:widht=8", "unknown knob 'widht'; did you mean 'width'"),
        ("sequential:width=-8", "Expected `int` >= 1 - at .*width"),
        ("sequential:order=random", "Invalid enum value .random. - at .*order"),
        ("sequential:width=10", "width 10 is no multiple of 4 heads"),
    ],
)
def test_a_network_that_there_is_not_is_refused(network: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        build(network=network, untrained=True)
