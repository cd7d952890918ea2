"""Placeto's policy: which units it pools over, what it computes, and how it places."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.gym.iterative import EpisodeStart, Mdp
from envs.gym.observations import Progress
from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.episodes import EpisodeDecision, roll_out
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto import states as placeto_states
from placers.learned.placeto.network import Aggregator, PlacetoEncoder
from placers.learned.placeto.placer import build
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.placeto.states import ANCESTOR, DESCENDANT, PARALLEL, Relatives, States
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import META, Meta
from tests.drawn import examples
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph

SHAPES = ("placeto:devices=3,rounds=3", "placeto:rounds=3", "placeto:devices=3,width=5,rounds=2,mean=true")


def some_problem(ops: int, devices: int = 3, seed: int = 0) -> PreparedProblem:
    return PreparedProblem(Problem(random_graph(ops, seed), toy_cluster(devices)))


def some_states(*problems: PreparedProblem, seed: int = 0) -> list[Progress]:
    """A state of each problem, as it may come up half-way."""
    rng = np.random.default_rng(seed)
    states = []
    for index, prepared in enumerate(problems):
        units, devices = len(prepared.problem.units), len(prepared.problem.cluster)
        placement, visited = rng.integers(0, devices, units), rng.random(units) < 0.5
        states.append(Progress(index, prepared, placement, visited, int(rng.integers(units))))
    return states


def seen_by(policy: PlacetoPolicy, states: list[Progress]) -> States:
    return policy.stack(states, [Relatives.of(state.prepared.problem) for state in states])


@given(seed=st.integers(0, 1000), ops=st.integers(1, 25))
@settings(max_examples=examples(25, 10), deadline=None)
def test_kin_are_networkx_s_ancestors_and_descendants_and_the_rest_is_parallel(seed: int, ops: int) -> None:
    problem = some_problem(ops, seed=seed).problem
    graph: nx.DiGraph[int] = nx.DiGraph(random_graph(ops, seed).edges.tolist())
    graph.add_nodes_from(range(ops))
    kin = Relatives.of(problem).kin
    for unit in range(ops):
        before, after = nx.ancestors(graph, unit), nx.descendants(graph, unit)
        assert set(np.flatnonzero(kin[unit] == ANCESTOR)) == before
        assert set(np.flatnonzero(kin[unit] == DESCENDANT)) == after
        assert set(np.flatnonzero(kin[unit] == PARALLEL)) == set(range(ops)) - before - after - {unit}


def test_in_a_cycle_of_groups_a_unit_is_both_before_and_after() -> None:
    chain = toy_graph([1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)], group=[0, 1, 0, 2])  # groups {a, c}, {b}, {d}
    kin = Relatives.of(Problem(chain, toy_cluster(2))).kin
    both = ANCESTOR | DESCENDANT
    assert kin.tolist() == [[0, both, DESCENDANT], [both, 0, DESCENDANT], [ANCESTOR, ANCESTOR, 0]]


def test_a_graph_too_large_to_look_at_for_each_unit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeto_states, "MOST_UNITS", 5)
    with pytest.raises(InputError, match=r"'random6' has 6 units.*into 5 groups at most"):
        build(untrained=True).place(some_problem(6).problem)


def test_a_node_hears_its_producers_and_consumers_as_far_as_there_are_rounds() -> None:
    chain = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    for rounds in (1, 2, 3):
        torch.manual_seed(1)
        encoder = PlacetoEncoder(columns=6, rounds=rounds)
        for parameter in encoder.parameters():
            parameter.data.abs_()  # no ReLU shuts
        nodes = torch.rand(5, 6, requires_grad=True)
        embedded = encoder.embed(nodes, chain)[2]
        down, up = embedded[:6], embedded[6:]
        for embedding, heard in ((down, range(2 - min(rounds, 2), 3)), (up, range(2, 3 + min(rounds, 2)))):
            (gradient,) = torch.autograd.grad(embedding.sum(), nodes, retain_graph=True)
            assert set(gradient.abs().sum(1).nonzero()[:, 0].tolist()) == set(heard)


def test_a_node_without_producers_hears_nothing_from_above() -> None:
    encoder = PlacetoEncoder(columns=6)
    for parameter in encoder.parameters():
        torch.nn.init.uniform_(parameter)  # not even a bias
    nodes = torch.rand(3, 6)
    entered, embedded = encoder.enter(nodes), encoder.embed(nodes, torch.tensor([[0], [1]]))
    assert torch.equal(embedded[2], torch.cat([entered[2], entered[2]]))
    assert torch.equal(embedded[0, :6], entered[0])
    assert torch.equal(embedded[1, 6:], entered[1])
    assert not torch.equal(embedded[1, :6], entered[1])


def test_the_pools_are_over_the_kin_of_the_current_unit() -> None:
    torch.manual_seed(0)
    encoder = PlacetoEncoder(columns=6)
    for parameter in encoder.parameters():
        parameter.data.abs_()
    nodes = torch.rand(6, 6, requires_grad=True)  # five of one part, one of another; no messages
    kin = torch.tensor([ANCESTOR, 0, DESCENDANT, PARALLEL, ANCESTOR | DESCENDANT, PARALLEL], dtype=torch.uint8)
    part, current = torch.tensor([0, 0, 0, 0, 0, 1]), torch.tensor([1, 5])
    empty = torch.zeros(2, 0, dtype=torch.int64)
    pooled = encoder(States(nodes, empty, kin, part, current, torch.arange(2), torch.zeros(2)))
    for block, members in enumerate(([0, 4], [2, 4], [3], [1])):
        (gradient,) = torch.autograd.grad(pooled[0, 12 * block : 12 * (block + 1)].sum(), nodes, retain_graph=True)
        assert gradient.abs().sum(1).nonzero()[:, 0].tolist() == members


def test_an_aggregator_is_g_of_the_sum_of_f() -> None:
    one, averaging = (Aggregator(1, mean) for mean in (False, True))
    for aggregator in (one, averaging):
        for network, scale, shift in ((aggregator.each, 2.0, 1.0), (aggregator.all, 3.0, 0.5)):
            first, last = network[0], network[2]
            assert isinstance(first, torch.nn.Linear)
            assert isinstance(last, torch.nn.Linear)
            for layer, weight, bias in ((first, scale, 0.0), (last, 1.0, shift)):
                torch.nn.init.constant_(layer.weight, weight)
                torch.nn.init.constant_(layer.bias, bias)
    values = torch.tensor([[1.0], [2.0], [-4.0]])  # f: 3, 5, 1; g(s) = 3 s + 0.5
    source, target = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])
    assert one(values, source, target, 3)[:, 0].tolist() == [24.5, 3.5, 0.5]
    assert averaging(values, source, target, 3)[:, 0].tolist() == [12.5, 3.5, 0.5]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_state_is_rated_alike_alone_and_in_a_batch(shape: str) -> None:
    policy = PlacetoPolicy.new(shape, seed=1)
    states = some_states(*(some_problem(ops, seed=ops) for ops in (1, 6, 17, 6)))
    together = policy.logits(seen_by(policy, states))
    assert together.shape == (4, 3)
    for state, row in zip(states, together, strict=True):
        torch.testing.assert_close(policy.logits(seen_by(policy, [state]))[0], row)


def test_without_a_number_of_devices_it_serves_clusters_side_by_side_and_does_not_mind_their_order() -> None:
    policy = PlacetoPolicy.new("placeto", seed=1)
    states = some_states(some_problem(9, 2), some_problem(7, 4))
    logits = policy.logits(seen_by(policy, states))
    assert torch.isinf(logits[0, 2:]).all(), "devices that are not there are never chosen"
    chosen, entropy = policy.score(seen_by(policy, states), torch.tensor([1, 3]))
    for row, count, device in ((0, 2, 1), (1, 4, 3)):
        probabilities = logits[row, :count].softmax(-1)
        torch.testing.assert_close(chosen[row], probabilities[device].log())
        torch.testing.assert_close(entropy[row], -(probabilities * probabilities.log()).sum())
    several, again = policy.score(seen_by(policy, states), torch.tensor([[1, 0], [3, 2]]))
    torch.testing.assert_close(several[:, 0], chosen)
    torch.testing.assert_close(several[:, 1], torch.stack([logits[0].softmax(-1)[0], logits[1].softmax(-1)[2]]).log())
    torch.testing.assert_close(again, entropy)
    states[1].placement = 3 - states[1].placement  # equal devices, numbered from the other end
    torch.testing.assert_close(policy.logits(seen_by(policy, states))[1], logits[1].flip(0))


@pytest.mark.parametrize("devices", [0, 3])
def test_a_share_of_the_draws_is_uniform_over_the_cluster_s_devices(devices: int) -> None:
    states = some_states(some_problem(5, 3), some_problem(7, 3))
    plain, mixed = (PlacetoPolicy.new(f"placeto:devices={devices},explore={share}", seed=1) for share in (0.0, 0.3))
    before, after = (policy.logits(seen_by(policy, states)).softmax(-1) for policy in (plain, mixed))
    torch.testing.assert_close(after, 0.7 * before + 0.3 / 3)
    chosen, _ = mixed.score(seen_by(mixed, states), torch.tensor([1, 2]))
    chosen.sum().backward()  # type: ignore[no-untyped-call]
    assert all(torch.isfinite(value.grad).all() for value in mixed.parameters() if value.grad is not None)


def test_a_policy_for_some_number_of_devices_refuses_another() -> None:
    with pytest.raises(InputError, match=r"for 3 devices, cluster 'toy2' has 2.*devices=0"):
        PlacetoPolicy.new(SHAPES[0], seed=0).view(Problem(random_graph(4, 0), toy_cluster(2)))


def test_draws_follow_the_probabilities() -> None:
    policy = PlacetoPolicy.new(SHAPES[0], seed=1)
    (state,) = some_states(some_problem(6))
    seen = policy.stack([state] * 2000, [Relatives.of(state.prepared.problem)] * 2000)
    drawn = policy.act(seen, torch.Generator().manual_seed(0))
    frequency = torch.bincount(drawn, minlength=3) / 2000
    torch.testing.assert_close(frequency, policy.logits(seen)[0].softmax(-1), atol=0.04, rtol=0)


def test_an_episode_visits_in_order_and_tells_what_it_saw() -> None:
    problems = [some_problem(4, seed=1), some_problem(7, seed=2)]
    mdp = Mdp(EpisodeStart(visits="given", start="zero"))
    rng = np.random.default_rng(0)
    episodes = [mdp.begin(i, prepared, rng) for i, prepared in enumerate(problems)]
    relatives = {prepared: Relatives.of(prepared.problem) for prepared in problems}
    steps: list[list[EpisodeDecision]] = list(
        roll_out(PlacetoPolicy.new("placeto", 0), episodes, relatives, torch.Generator().manual_seed(0))
    )
    assert [len(decisions) for decisions in steps] == [2, 2, 2, 2, 1, 1, 1]
    for i, (episode, prepared) in enumerate(zip(episodes, problems, strict=True)):
        mine = [each for decisions in steps for each in decisions if each.episode == i]
        assert [each.state.current for each in mine] == list(range(len(prepared.problem.units)))
        assert [int(each.state.visited.sum()) for each in mine] == list(range(len(prepared.problem.units)))
        assert not mine[0].state.placement.any()
        assert episode.progress.placement.tolist() == [each.device for each in mine]
        assert episode.ended


def test_without_simulations_it_answers_with_the_end_of_the_greedy_episode() -> None:
    prepared = some_problem(8, seed=3)
    policy = PlacetoPolicy.new("placeto:devices=3,order=given", seed=8)
    episode = Mdp(EpisodeStart(start="single", visits="given")).begin(0, prepared, np.random.default_rng(0))
    for decisions in roll_out(
        policy, [episode], {prepared: Relatives.of(prepared.problem)}, torch.Generator(), greedy=1
    ):
        assert decisions[0].device == int(policy.logits(seen_by(policy, [decisions[0].state])).argmax())
    result = LearnedPlacer(policy, "placeto").place(prepared.problem, seed=9, budget=0)
    assert result.plan.placement.tolist() == episode.progress.placement.tolist()
    assert result.plan.placement[-1] != prepared.fastest_device, "it has moved to the last"
    assert result.simulations == 0


def test_a_budget_buys_the_best_of_what_episodes_pass_through(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    placer = build(untrained=True)
    greedy = placer.place(problem, seed=1)
    assert greedy.simulations == 0
    seconds = [
        simulate(problem, placer.place(problem, seed=1, budget=budget).plan).step_seconds for budget in (1, 4, 40)
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] == four_ops_two_devices.best_seconds, "sixteen placements in all, and some forty draws"
    assert (
        build(untrained=True, samples=1).place(problem, seed=1, budget=40).plan.placement.tolist()
        == greedy.plan.placement.tolist()
    )
    assert [build(untrained=True, samples=count).place(problem, budget=40).simulations for count in (1, 3)] == [0, 3]


@pytest.mark.parametrize("network", ["placeto:devices=3,rounds=3,order=given", "placeto:width=5,mean=true"])
def test_a_policy_is_kept_in_a_folder(network: str, tmp_path: Path) -> None:
    policy = PlacetoPolicy.new(network, seed=3)
    save_policy(tmp_path, policy.state_dict(), Meta(placer="placeto", network=network, seed=4))
    placer = build(checkpoint=str(tmp_path))
    assert placer.name == f"placeto:checkpoint={tmp_path}"
    assert isinstance(placer.policy, PlacetoPolicy)
    assert placer.policy.shape == policy.shape
    states = some_states(some_problem(8))
    assert torch.equal(policy.logits(seen_by(policy, states)), placer.policy.logits(seen_by(placer.policy, states)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 9}, "written as version 9, this placelab reads version 1"),
        ({"placer": "gdp"}, "holds a policy of 'gdp', not of 'placeto'"),
        ({"network": "placeto:devices=2"}, "not the weights of 'placeto:devices=2'"),
        ({"network": "placeto:device=2"}, "unknown knob 'device'; did you mean 'devices'"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(change: dict[str, object], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no policy"):
        build(checkpoint=str(tmp_path))
    network = "placeto:devices=3,rounds=3"
    save_policy(tmp_path, PlacetoPolicy.new(network, 3).state_dict(), Meta(placer="placeto", network=network, seed=3))
    path = tmp_path / META
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=sentence):
        build(checkpoint=str(tmp_path))
