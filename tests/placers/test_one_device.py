"""The first decision of a policy, everything on one device: its probability, where it is open, how it is learned."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from graphs.cluster import Cluster, Device
from graphs.problem import Problem
from placers.learned.sequential.one_device import LARGEST_LOGIT, SHARE_TRIED, is_one_device, one_device
from placers.learned.sequential.placer import build
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Imitation, Ppo
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK
from training.learning.ppo import PpoTrainer

DECIDES = f"{NETWORK},one_device=true"


def policy_that(says: float = 0.0, seed: int = 0) -> SequentialPolicy:
    """A policy whose logit for one device is this plus little."""
    policy = SequentialPolicy.new(DECIDES, seed)
    assert policy.one_device is not None
    nn.init.constant_(policy.one_device.out.bias, says)
    return policy


def chain(output_bytes: float, ops: int = 6) -> Problem:
    """Ops of a second one after another, and as many next to them; an output is sent in as many seconds as bytes."""
    edges = [(i, i + 2) for i in range(2 * ops - 2)] + [(i, i + 3) for i in range(0, 2 * ops - 3, 2)]
    graph = toy_graph([1.0] * 2 * ops, edges, output_bytes=[output_bytes] * 2 * ops)
    return Problem(graph, toy_cluster(2))


def held(memory: tuple[float, ...], flops: tuple[float, ...], weights: float = 60.0) -> Problem:
    count = len(memory)
    devices = tuple(Device(f"gpu:{i}", "gpu", f, 1.0, m) for i, (m, f) in enumerate(zip(memory, flops, strict=True)))
    links = np.arange(count**2).reshape(count, count)
    cluster = Cluster("unlike", devices, np.zeros((count, count)), np.ones((count, count)), links)
    return Problem(toy_graph([2, 2], [(0, 1)], weights=[weights / 2] * 2, weight_uses=[(0, 0), (1, 1)]), cluster)


def test_the_device_is_the_fastest_that_holds_everything() -> None:
    policy = policy_that()
    for memory, flops, expected in (
        ((100.0, 100.0, 100.0), (1.0, 2.0, 2.0), 1),
        ((100.0, 50.0, 100.0), (1.0, 4.0, 2.0), 2),
        ((61.0, 50.0, 61.0), (1.0, 4.0, 2.0), -1),
    ):
        layout = policy.view(held(memory, flops))[1]
        assert one_device(layout) == expected
    layout = policy.view(held((100.0, 100.0, 100.0), (2.0, 1.0, 2.0)))[1]
    assert [is_one_device(layout, np.array(p)) for p in ((0, 0), (2, 2), (1, 1), (0, 2))] == [True, True, False, False]


@settings(max_examples=examples(15, 8), deadline=None)
@given(st.integers(0, 1000), st.integers(2, 12), st.integers(1, 4), st.sampled_from((5.0, 1e9)))
def test_decisions_before_and_after_are_one_distribution(seed: int, ops: int, devices: int, memory: float) -> None:
    """One device has the probability of its logit; placing unit by unit the rest, and then that of its units."""
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=memory))
    policy = policy_that(0.3, seed)
    batch = policy.stack([policy.view(problem)])
    placements = policy.drawn(batch, 4, seed)
    plain = SequentialPolicy.new(NETWORK, seed)
    plain.load_state_dict({key: value for key, value in policy.state_dict().items() if "one_device" not in key})
    assert policy.one_device is not None
    logit = policy.one_device(policy(batch.encoded), batch.encoded.unit_mask, batch.layouts)
    open_ = one_device(batch.layouts[0]) >= 0 and devices > 1
    for placement in placements:
        ours = policy.score(batch, policy.actions_of(batch, [placement]))
        units = plain.score(batch, plain.actions_of(batch, [placement])).log_probability.sum()
        if not open_:
            expected = units
            assert not ours.mask[0, -1]
        elif is_one_device(batch.layouts[0], placement):
            expected = torch.sigmoid(logit).log()
        else:
            expected = (1 - torch.sigmoid(logit)).log() + units
        torch.testing.assert_close(ours.log_probability.sum(), expected.squeeze(), atol=1e-5, rtol=1e-5)
        p = float(torch.sigmoid(logit).detach())
        nats = -(p * np.log(p) + (1 - p) * np.log(1 - p)) if open_ else 0.0
        assert float(ours.entropy[0, -1].detach()) == pytest.approx(nats, abs=1e-5)


def test_neither_decision_is_ever_certain() -> None:
    """What PPO tries without being asked has a probability ratio, which has to stay a number."""
    for says in (-1e4, 1e4):
        policy = policy_that(says)
        batch = policy.stack([policy.view(chain(1.0))])
        assert policy.one_device is not None
        logit = policy.one_device(policy(batch.encoded), batch.encoded.unit_mask, batch.layouts)
        assert float(logit.detach()) == pytest.approx(np.sign(says) * LARGEST_LOGIT)


def test_in_training_the_first_sample_of_some_problems_is_on_one_device_whatever_the_policy_would_rather_do() -> None:
    tight = held((61.0, 61.0), (1.0, 1.0))
    problems = [chain(1.0), tight, Problem(random_graph(9, seed=1), toy_cluster(3, memory=1e9))]
    for says in (-9.0, 9.0):
        policy = policy_that(says)
        batch = policy.stack([policy.view(problem) for problem in problems])
        taken, everywhere = [], []
        for seed in range(16):
            action = policy.act(batch, 4, torch.Generator().manual_seed(seed))
            assert action.one_device is not None
            assert not action.one_device.taken[:, 1:].any()
            taken.append(action.one_device.taken[:, 0].numpy())
            for i in np.flatnonzero(taken[-1]):
                units = len(batch.layouts[i].order)
                assert (action.devices[i, 0, :units] == one_device(batch.layouts[i])).all()
            decided = policy.score(batch, action).log_probability[:, 0].detach()
            everywhere.append(decided[torch.from_numpy(taken[-1])][:, :-1].abs().sum())
        assert not any(everywhere), "a unit on one device is no decision of its own"
        shares = np.mean(taken, axis=0)
        assert shares[1] == 0, "it does not fit there"
        assert shares[[0, 2]] == pytest.approx(SHARE_TRIED, abs=0.3)


def test_samples_of_both_kinds_are_joined_as_if_they_were_drawn_together() -> None:
    policy = policy_that()
    batch = policy.stack([policy.view(chain(1.0)), policy.view(Problem(random_graph(5, seed=1), toy_cluster(3)))])
    one = policy.act(batch, 3, torch.Generator().manual_seed(1))
    other = policy.actions_of(batch, [np.zeros(12, np.int64), np.zeros(5, np.int64)])
    joined = policy.score(batch, one.cat(other)).log_probability
    apart = torch.cat([policy.score(batch, each).log_probability for each in (one, other)], 1)
    torch.testing.assert_close(joined, apart)


def test_a_policy_that_says_so_places_everything_on_one_device_and_its_samples_elsewhere() -> None:
    problem = Problem(random_graph(12, seed=1), toy_cluster(3, memory=1e9))
    sure, never = policy_that(9.0), policy_that(-9.0)
    assert sure.candidates(problem, 1, 0).tolist() == [[0] * 12]
    found, plain = sure.candidates(problem, 4, 0), never.candidates(problem, 3, 0)
    assert found[0].tolist() == [0] * 12
    assert np.array_equal(found[1:], plain)
    assert len(np.unique(plain[0])) > 1
    tight = Problem(random_graph(12, seed=1), toy_cluster(3, memory=1.0))
    assert np.array_equal(sure.candidates(tight, 2, 0), never.candidates(tight, 2, 0)), "nothing holds everything"


def test_a_policy_without_that_decision_is_what_it_was() -> None:
    problem = Problem(random_graph(12, seed=1), toy_cluster(3, memory=1e9))
    plain, decides = SequentialPolicy.new(NETWORK, 3), SequentialPolicy.new(DECIDES, 3)
    assert not [key for key in plain.state_dict() if "one_device" in key]
    batch = plain.stack([plain.view(problem)])
    assert plain.says_one_device(batch) == -1
    action = plain.act(batch, 4, torch.Generator().manual_seed(0))
    assert action.one_device is None
    decides.load_state_dict(decides.state_dict() | plain.state_dict())
    again = decides.act(batch, 4, torch.Generator().manual_seed(0))
    assert torch.equal(action.devices[:, 1:], again.devices[:, 1:])


@pytest.mark.parametrize("learns_by", ["ppo", "imitation"])
def test_where_transfers_are_dear_one_device_is_learned_and_where_they_are_free_it_is_not(learns_by: str) -> None:
    dear, cheap = chain(9.0), chain(0.0)
    policy = policy_that(-1.0)
    settings_ = Ppo(updates=60, problems_per_update=2, samples=8, learning_rate=3e-3, epochs=2)
    imitation = Imitation(simulations=64, updates=60)
    trainer = PpoTrainer(policy, [dear, cheap], settings_, 0, imitation if learns_by == "imitation" else None)
    for _ in range(60):
        if learns_by == "ppo":
            trainer.update()
        else:
            trainer.imitate()
    assert len(np.unique(policy.candidates(dear, 1, 0))) == 1
    assert len(np.unique(policy.candidates(cheap, 1, 0))) == 2
    says = [policy.says_one_device(policy.stack([policy.view(each)])) for each in (dear, cheap)]
    assert says == [0, -1]


def test_the_knob_is_part_of_the_network() -> None:
    placed = build(network=DECIDES, untrained=True).place(chain(1.0), budget=1)
    assert placed.simulations == 0
