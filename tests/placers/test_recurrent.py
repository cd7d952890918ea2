"""ColocRL and HDP: their networks, what they see, and that scores are those of what was drawn."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned import additive_attention, recurrent
from placers.learned.colocrl.placer import build as build_colocrl
from placers.learned.colocrl.policy import ColocRlBatch, ColocRlPolicy
from placers.learned.features import KINDS
from placers.learned.hdp.grouper import SLOTS, describe_groups, neighbours_of
from placers.learned.hdp.placer import build as build_hdp
from placers.learned.hdp.policy import HdpAction, HdpPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.op_sequence import OpSequence, Sequences
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

SPECS = {
    "colocrl": "colocrl:devices=3,hidden=16,positions=12,temperature=1",
    "hdp": "hdp:devices=3,hidden=16,grouper=8,groups=5,temperature=1",
    "hdp as released": "hdp:devices=3,hidden=16,grouper=8,groups=5,released=true",
}
DIAMOND = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])


def new(name: str, seed: int = 0) -> Any:
    """A small policy for three devices."""
    return HdpPolicy.new(SPECS[name], seed) if name.startswith("hdp") else ColocRlPolicy.new(SPECS[name], seed)


def batch_of(policy: Any, *graphs: OpGraph) -> Any:
    problems = [Problem(graph, toy_cluster(3)) for graph in graphs]
    return policy.stack([policy.view(problem) for problem in problems])


def built(name: str, **knobs: Any) -> Placer:
    return build_colocrl(**knobs) if name == "colocrl" else build_hdp(**knobs)


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25))
def test_what_was_drawn_has_scores_where_it_is_not_masked(name: str, seed: int, ops: int) -> None:
    policy = new(name, seed)
    batch = batch_of(policy, random_graph(ops, seed=seed), random_graph(7, seed=seed + 1))
    scores = policy.score(batch, policy.act(batch, 4, draw(seed)))
    assert scores.log_probability.shape == (2, 4, scores.mask.shape[1])
    assert (scores.log_probability <= 0).all()
    assert (scores.log_probability > -1e6).all(), "nothing impossible was drawn"
    assert not scores.log_probability.masked_select(~scores.mask[:, None]).any()
    assert not scores.entropy.masked_select(~scores.mask).any()


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_actions_can_be_made_of_placements(name: str, seed: int) -> None:
    policy, graphs = new(name, seed), [random_graph(ops, seed=seed) for ops in (12, 7)]
    batch = batch_of(policy, *graphs)
    used = np.random.default_rng(seed).permutation(3)[:2]  # two devices: HDP has a group for each, if not for three
    placements = [np.random.default_rng(seed).choice(used, size=len(graph)) for graph in graphs]
    action = policy.actions_of(batch, placements)
    for row, placement in zip(action.devices[:, 0], placements, strict=True):
        assert row[: len(placement)].tolist() == placement.tolist()
        assert not row[len(placement) :].any(), "padded units"
    scores = policy.score(batch, action)
    assert torch.isfinite(scores.log_probability).all()
    if name != "colocrl":
        devices = action.group_devices.gather(2, action.groups)
        by_unit = batch.sequences.by_unit(devices) * batch.sequences.mask[:, None]
        assert torch.equal(by_unit, action.devices), "units are where their groups are"


@pytest.mark.parametrize("name", SPECS)
def test_what_is_batched_with_a_problem_changes_nothing(name: str) -> None:
    policy, small = new(name), random_graph(6, seed=1)
    alone, together = batch_of(policy, small), batch_of(policy, small, random_graph(20, seed=2))
    action = policy.act(alone, 3, draw())
    other = policy.act(together, 3, draw(1))
    expected, scores = policy.score(alone, action), policy.score(together, put_first(action, other))
    own, kept = expected.mask[0], scores.mask[0]
    torch.testing.assert_close(scores.log_probability[0][:, kept], expected.log_probability[0][:, own])
    torch.testing.assert_close(scores.entropy[0, kept], expected.entropy[0, own])


def put_first(action: Any, other: Any) -> Any:
    """Another action, of more problems of more units, with this one in place of its first problem's; 0 where padded."""
    parts = {}
    for part in fields(other):
        values, mine = getattr(other, part.name).clone(), getattr(action, part.name)
        values[0] = 0
        values[0, :, : mine.shape[2]] = mine[0]
        parts[part.name] = values
    return replace(other, **parts)


@pytest.mark.parametrize("name", SPECS)
def test_draws_follow_the_generator_and_the_weights_the_seed(name: str) -> None:
    policy = new(name)
    batch = batch_of(policy, random_graph(20, seed=0))
    one, same_again, another = (policy.act(batch, 4, draw(seed)).devices for seed in (1, 1, 2))
    assert torch.equal(one, same_again)
    assert not torch.equal(one, another)
    same, other = new(name, seed=0).state_dict(), new(name, seed=1).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in policy.state_dict().items())
    assert not all(torch.equal(value, other[key]) for key, value in policy.state_dict().items())


@pytest.mark.parametrize("name", SPECS)
def test_every_weight_has_a_part_in_the_score(name: str) -> None:
    policy = new(name)
    batch = batch_of(policy, random_graph(8, seed=0))
    scores = policy.score(batch, policy.act(batch, 4, draw()))
    scores.log_probability.sum().backward()
    for key, parameter in policy.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", SPECS)
def test_as_many_samples_as_asked_for_are_the_likeliest_choices_whatever_is_drawn(name: str) -> None:
    policy = new(name)
    batch = batch_of(policy, random_graph(12, seed=3), random_graph(9, seed=4))
    for greedy in (0, 1, 2):
        one, other = (policy.sample(batch, 4, draw(seed), greedy=greedy).devices for seed in (1, 2))
        for problem, units in enumerate((12, 9)):
            same = [torch.equal(*(each[problem, sample, :units] for each in (one, other))) for sample in range(4)]
            assert same == [sample < greedy for sample in range(4)]


@pytest.mark.parametrize("name", SPECS)
def test_drawing_follows_the_probabilities(name: str) -> None:
    policy = new(name)
    batch = batch_of(policy, toy_graph([1, 1], [(0, 1)]))
    action = policy.act(batch, 20_000, draw())
    drawn = policy.score(batch, action).log_probability.detach()
    kinds, count = torch.unique(action.devices[0], dim=0, return_counts=True)
    assert len(kinds) == 9, "all placements occur"
    decisions = torch.cat([getattr(action, part.name)[0] for part in fields(action)], 1)
    whole = torch.unique(torch.cat([decisions.double(), drawn[0].sum(1, keepdim=True).double()], 1), dim=0)
    if name == "colocrl":
        torch.testing.assert_close(count / 20_000, whole[:, -1].exp().float(), atol=0.02, rtol=0)
    assert whole[:, -1].exp().sum() <= 1 + 1e-4, "what was drawn has no more probability than all"


SIZES = st.tuples(*[st.integers(1, 6)] * 4)  # rows, queries, keys, width


@settings(deadline=None)
@given(SIZES, st.integers(1, 200), st.integers(0, 1000))
def test_attention_in_parts_is_attention(sizes: tuple[int, int, int, int], part: int, seed: int) -> None:
    rows, queries, keys, width = sizes
    shapes = (rows, queries, width), (rows, keys, width), (width,)
    inputs = [3 * torch.randn(shape, generator=draw(seed), dtype=torch.float64).requires_grad_() for shape in shapes]

    def plain(queries: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.tanh(queries[:, :, None] + keys[:, None]) @ weights

    expected = plain(*inputs)
    wanted = torch.randn(expected.shape, generator=draw(seed), dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additive_attention, "PART", part)
        scores = additive_attention.additive_scores(*inputs)
        torch.testing.assert_close(scores, expected)
        found = torch.autograd.grad(scores, inputs, wanted)
    for one, other in zip(found, torch.autograd.grad(expected, inputs, wanted), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("query", "key", "expected"), [(90, 90, 1), (-90, -90, -1), (90, -20, 1), (39, -39, 0)])
def test_attention_survives_large_queries_and_keys(query: float, key: float, expected: float) -> None:
    queries, keys = inputs = [torch.full((1, 1, 1), float(value)).requires_grad_() for value in (query, key)]
    score = additive_attention.additive_scores(queries, keys, torch.ones(1))
    torch.testing.assert_close(score.flatten(), torch.tensor([float(expected)]))
    gradient = torch.autograd.grad(score.sum(), inputs)
    torch.testing.assert_close(torch.stack(gradient).flatten(), torch.full((2,), 1.0 - expected**2))


def test_the_decoder_knows_what_it_chose_before() -> None:
    network = recurrent.Seq2Seq(4, 2, 8, bound=5.0, temperature=1.0)
    memory = network.encode(torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
    devices = torch.zeros(2, 5, dtype=torch.int64)
    other = devices.clone()
    other[:, 2] = 1
    changed = (network.log_probabilities(memory, devices) != network.log_probabilities(memory, other)).any(-1)
    assert not changed[:, :3].any()
    assert changed[:, 3:].all()


def test_logits_are_bounded() -> None:
    network = recurrent.Seq2Seq(4, 2, 8, bound=1.0, temperature=1e-3)
    memory = network.encode(torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
    least = network.log_probabilities(memory, torch.zeros(2, 5, dtype=torch.int64)).exp().min()
    assert least >= 1 / (1 + np.exp(2)) - 1e-6, "two logits between -1 and 1"


def test_a_sequence_is_in_topological_order_whatever_the_order_of_the_units() -> None:
    backwards = toy_graph([1, 1, 1], [(2, 1), (1, 0)], output_bytes=[0, 1, 3])
    sequence = OpSequence.of(backwards)
    assert sequence.order.tolist() == [2, 1, 0]
    assert sequence.edges.tolist() == [[0, 1], [1, 2]]
    np.testing.assert_allclose(sequence.sizes, np.log1p([3, 1, 0]))
    assert sequence.types.tolist() == [[0.0] * (len(KINDS) - 1) + [1.0]] * 3
    sequences = Sequences.of([sequence, OpSequence.of(DIAMOND)])
    by_position = torch.tensor([[[7, 8, 9, 0]], [[1, 2, 3, 4]]])
    assert sequences.by_unit(by_position).tolist() == [[[9, 8, 7, 0]], [[1, 2, 3, 4]]]
    assert torch.equal(sequences.by_position(sequences.by_unit(by_position)), by_position)


def test_colocrl_sees_direct_neighbours_within_its_positions() -> None:
    policy = ColocRlPolicy.new("colocrl:devices=3,hidden=16,positions=3", seed=0)
    batch: ColocRlBatch = batch_of(policy, DIAMOND)
    inputs, outputs = batch.neighbours[0].view(4, 2, 3).unbind(1)
    assert inputs.tolist() == [[0, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 1]]
    assert outputs.tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]], "position 3 is beyond"


def test_hdp_lists_neighbours_and_the_released_code_forgets_some() -> None:
    sequence = OpSequence.of(DIAMOND)
    end, middle = (
        [*numbers, *[0.0] * (SLOTS - len(numbers))] for numbers in ([1 / 4, -1, 2 / 4, -1], [0, -1, 3 / 4, 1])
    )
    assert neighbours_of(sequence, released=False)[[3, 1]].tolist() == [end, middle]
    released = neighbours_of(sequence, released=True)[[3, 1], :4].tolist()
    assert released == [[2, -1, 0, 0], [0, -1, 3, 1]], "only the last predecessor, by its number"


def test_hdp_describes_groups_by_connections_types_and_sizes() -> None:
    sequences = Sequences.of([OpSequence.of(DIAMOND)])
    assigned = torch.tensor([[[0, 0, 1, 1]]])
    first, second, empty = describe_groups(sequences, assigned, 3, released=False)[0, 0].tolist()
    size = 2 * np.log1p(1)
    rows = [[1, 2, 0, 1, 0, 0], [0, 1, 0, 2, 1, 0]]  # a to b, c; b and c to d: a row, then a column
    for described, row in ((first, rows[0]), (second, rows[1])):
        np.testing.assert_allclose(described, np.array([*row, *[0] * (len(KINDS) - 1), 2, size]) / 3, rtol=1e-6)
    assert not any(empty)
    released = describe_groups(sequences, assigned, 3, released=True)[0, 0, 0]
    np.testing.assert_allclose(released[6:], np.array([size, *[0] * (len(KINDS) - 2), 2, 0]) / 3, rtol=1e-6)


def test_units_of_a_group_share_its_device() -> None:
    policy = new("hdp")
    batch = batch_of(policy, random_graph(20, seed=0))
    action: HdpAction = policy.act(batch, 6, draw())
    devices = action.group_devices.gather(2, action.groups)
    assert torch.equal(batch.sequences.by_position(action.devices), devices)


@pytest.mark.parametrize("name", ["colocrl", "hdp"])
def test_a_policy_survives_the_disk_and_is_for_its_number_of_devices(name: str, tmp_path: Path) -> None:
    policy = new(name)
    save_policy(tmp_path, policy.state_dict(), Meta(placer=name, network=SPECS[name], seed=0))
    problem = Problem(random_graph(10, seed=1), toy_cluster(3))
    kept = LearnedPlacer(policy, name)
    loaded = built(name, checkpoint=str(tmp_path))
    assert loaded.place(problem, budget=5).plan.devices == kept.place(problem, budget=5).plan.devices
    with pytest.raises(InputError, match=f"this policy of '{name}' is for 3 devices, cluster 'toy2' has 2; train one"):
        loaded.place(Problem(random_graph(10, seed=1), toy_cluster(2)))


@pytest.mark.parametrize("name", ["colocrl", "hdp"])
def test_a_spec_that_describes_no_policy_is_refused(name: str) -> None:
    make = {"colocrl": ColocRlPolicy.new, "hdp": HdpPolicy.new}[name]
    with pytest.raises(InputError, match="has the network"):
        make("graphsage_transformer", 0)
    with pytest.raises(InputError, match="unknown knob 'hiden'; did you mean 'hidden'"):
        make(f"{name}:hiden=16", 0)
    with pytest.raises(InputError, match="multiple of 2"):
        make(f"{name}:hidden=15", 0)
    with pytest.raises(InputError, match="Expected `int`"):
        make(f"{name}:devices=two", 0)


@pytest.mark.parametrize("name", ["colocrl", "hdp"])
def test_more_samples_never_choose_worse(name: str) -> None:
    problem = Problem(random_graph(20, seed=3), toy_cluster(3, memory=1000.0))
    placer = built(name, hidden=16, untrained=True)
    seconds = [simulate(problem, placer.place(problem, budget=budget).plan).step_seconds for budget in (1, 8, 64)]
    assert seconds[0] >= seconds[1] >= seconds[2]
