"""Random problems: as asked for, valid, with a plan that fits, the same for the same seed, apart by kind."""

from collections import Counter

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.simulation.simulator import Simulator
from graphs.cluster import FREE
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO, IDEAL, RUNTIMES
from tests.drawn import examples
from training.problems.random.kinds import KINDS
from training.problems.random.random_cluster import random_cluster
from training.problems.random.random_graph import GraphOrder, random_graph
from training.problems.random.random_memory import saving_plan
from training.problems.random.random_problem import random_problem, world_problems
from training.problems.random.renewed import RenewedProblems
from training.problems.random.settings import World

SEEDS = st.integers(0, 2**32)
SMALL = World(units=(8, 60))
SECONDS = 1e-3


def graph_order(
    kind: str, *, units: int = 40, training: bool = False, grouped: bool = False, transfers: float = 4.0
) -> GraphOrder:
    return GraphOrder(kind, units, SECONDS, transfers, training, grouped, equal_times=True)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(40, 6), deadline=None)
@given(seed=SEEDS)
def test_a_problem_is_within_its_bounds_the_same_again_and_has_a_plan_that_fits(kind: str, seed: int) -> None:
    one, two = (random_problem(SMALL, kind, np.random.default_rng(seed)) for _ in range(2))
    assert (one.graph.fingerprint, one.cluster.fingerprint) == (two.graph.fingerprint, two.cluster.fingerprint)
    assert np.array_equal(costs_of(one).op_seconds, costs_of(two).op_seconds)
    assert len(one.units) <= 60
    assert 2 <= len(one.cluster) <= 16
    assert one.runtime == IDEAL
    assert np.isfinite(one.cluster.memory_bytes).all()
    outcome = Simulator(one).run(saving_plan(one))
    assert outcome.fits
    assert np.isfinite(outcome.step_seconds)
    assert outcome.step_seconds > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_graph_has_the_units_that_were_asked_for(kind: str, training: bool, grouped: bool) -> None:
    rng = np.random.default_rng(7)
    cluster = random_cluster(rng, 3, SECONDS, unequal=False)
    graph = random_graph(rng, graph_order(kind, training=training, grouped=grouped), cluster)
    assert graph.is_training == training
    assert (40 - training) / 2 <= graph.num_units <= 40
    if grouped:
        assert graph.num_units == 40
        assert (graph.phase == 0).sum() >= 40
    elif not training:
        assert graph.num_units == len(graph)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transfers", [0.0, 0.1, 10.0])
def test_times_and_transfers_of_the_forward_pass_are_as_asked(kind: str, transfers: float) -> None:
    rng = np.random.default_rng(3)
    cluster = random_cluster(rng, 4, SECONDS, unequal=False)
    graph = random_graph(rng, graph_order(kind, transfers=transfers), cluster)
    seconds = costs_of(Problem(graph, cluster)).op_seconds
    assert seconds == pytest.approx(SECONDS), "all ops are to take the same time"
    per_byte = np.mean([1 / cluster.bandwidth[i, j] for i in range(4) for j in range(4) if i != j])
    assert graph.output_bytes.mean() * per_byte == pytest.approx(transfers * SECONDS)


def test_unequal_times_are_unequal_and_have_the_mean_that_was_asked_for() -> None:
    cluster = random_cluster(np.random.default_rng(0), 2, SECONDS, unequal=False)
    asked = GraphOrder("layered", 60, SECONDS, 1.0, training=False, grouped=False, equal_times=False)
    spreads = []
    for seed in range(20):
        graph = random_graph(np.random.default_rng(seed), asked, cluster)
        seconds = costs_of(Problem(graph, cluster)).op_seconds[:, 0]
        assert seconds.mean() == pytest.approx(SECONDS)
        spreads.append(seconds.max() / seconds.min())
    assert min(spreads) > 1
    assert max(spreads) > 50, "some are heavy-tailed"


def test_clusters_are_of_all_sorts() -> None:
    rng = np.random.default_rng(0)
    clusters = [random_cluster(rng, int(rng.integers(2, 17)), SECONDS, unequal=i % 2 == 1) for i in range(200)]
    seen = Counter[str]()
    for i, cluster in enumerate(clusters):
        apart = ~np.eye(len(cluster), dtype=np.bool_)
        speeds, channels = {device.flops_per_second for device in cluster.devices}, cluster.channel[apart]
        assert (len(speeds) > 1) <= (i % 2 == 1)
        seen["unequal"] += len(speeds) > 1
        seen["free"] += bool((channels == FREE).all())
        seen["bus"] += len(cluster) > 2 and len(set(channels.tolist())) == 1 and channels[0] != FREE
        seen["private"] += len(set(channels.tolist())) == len(channels) > 2
        seen["sender"] += len(set(channels.tolist())) == len(cluster) > 3
        seen["several bandwidths"] += len(set(cluster.bandwidth[apart].tolist())) > 1
        seen["no latency"] += bool((cluster.latency[apart] == 0).all())
        seen["held by launches"] += bool(cluster.hold_seconds.any())
    assert all(6 <= count <= 194 for count in seen.values()), seen
    assert len(seen) == 8


def test_shares_decide_what_problems_are_like() -> None:
    names = ("training", "grouped", "measured", "tight", "nothing_sent")
    none, every = (msgspec.convert({"units": (8, 30), **dict.fromkeys(names, share)}, World) for share in (0.0, 1.0))
    for problem in world_problems(["tree"], seed=0, count=12, settings=none):
        assert not problem.graph.is_training
        assert problem.graph.num_units == len(problem.graph)
        assert problem.timed_by == "roofline"
        assert problem.graph.output_bytes.all()
    for problem in world_problems(["tree"], seed=0, count=12, settings=every):
        assert problem.graph.is_training
        assert problem.graph.num_units < (problem.graph.phase == 0).sum()
        assert problem.timed_by == ""
        assert not problem.graph.output_bytes[problem.graph.phase == 0][:-1].any(), "but for the loss"
        peak = Simulator(problem).run(saving_plan(problem)).peak_bytes
        assert (peak <= problem.cluster.memory_bytes).all()
        assert problem.cluster.memory_bytes.max() <= 2 * peak.max() * (1 + 1e-9)


def test_problems_to_evaluate_on_take_turns_in_kind_and_are_not_those_of_training() -> None:
    kinds = ("chain", "fan")
    found = world_problems(kinds, seed=5, count=4, settings=SMALL, runtimes=[RUNTIMES[FIFO.name]])
    assert [problem.graph.name for problem in found] == ["random-chain", "random-fan"] * 2
    assert {problem.runtime.order for problem in found} == {FIFO}
    assert [problem.graph.fingerprint for problem in found[:2]] == [
        problem.graph.fingerprint for problem in world_problems(kinds, seed=5, count=2, settings=SMALL)
    ]
    trained = RenewedProblems(World(units=(8, 60), problems=4, kinds=kinds), seed=5)
    assert {problem.graph.fingerprint for problem in found}.isdisjoint(
        trained.problem(number).graph.fingerprint for number in range(20)
    )
    with pytest.raises(InputError, match="unknown kind of graph 'fann'; did you mean 'fan'"):
        World(held_out=("fann",))


def test_kinds_held_out_share_no_topology_with_those_trained_on() -> None:
    """By kind: graphs of 16 units and more; below that few shapes are possible, and a fan may be a tree of chains."""
    held_out = ("components", "attention", "elimination")
    world = World(units=(16, 60), grouped=0.0, problems=1, held_out=held_out)
    tested = {_topology(problem) for problem in world_problems(held_out, seed=0, count=30, settings=world)}
    row = RenewedProblems(world, seed=0)
    assert len(tested) >= 25
    assert tested.isdisjoint(_topology(row.problem(number)) for number in range(60))


def _topology(problem: Problem) -> str:
    """Equal for graphs of the same shape, whatever their costs, with very few exceptions."""
    graph: nx.Graph[int] = nx.Graph(problem.graph.edges.tolist())
    nx.set_node_attributes(graph, dict.fromkeys(graph, ""), "label")
    return str(nx.weisfeiler_lehman_graph_hash(graph, node_attr="label", iterations=4))


@settings(max_examples=examples(50, 9))
@given(updates=st.integers(0, 10_000), renewed=st.floats(0, 5), count=st.integers(1, 50))
def test_the_problems_that_are_held_are_renewed_at_the_rate_asked_for(updates: int, renewed: float, count: int) -> None:
    row = RenewedProblems(World(problems=count, renewed=renewed), seed=0)
    before, after = row.held(updates), row.held(updates + 1)
    assert len(before) == count
    assert 0 <= after.start - before.start <= int(np.ceil(renewed))
    assert before.start == int(updates * renewed)


def test_every_kind_is_met_in_training_but_those_held_out() -> None:
    row = RenewedProblems(World(units=(8, 12), problems=1, held_out=("chain", "tiles")), seed=2)
    met = Counter(row.problem(number).graph.name.removeprefix("random-") for number in range(120))
    assert set(met) == set(KINDS) - {"chain", "tiles"}
    other = RenewedProblems(World(units=(8, 12), problems=1, held_out=("chain", "tiles")), seed=3)
    assert row.problem(0).graph.fingerprint != other.problem(0).graph.fingerprint


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kinds": ("tre",)}, "unknown kind of graph 'tre'; did you mean 'tree'"),
        ({"kinds": ("tree", "tree")}, "'tree' is given twice"),
        ({"kinds": ("tree",), "held_out": ("tree",)}, "'tree' is both to be trained on and held out"),
        ({"held_out": tuple(KINDS)}, "all kinds of random graphs are held out"),
        ({"units": (60, 8)}, "units are to be from 60 to 8; give the smaller number first"),
        ({"units": (4, 8)}, "random graphs have at least 8 units, and units begins at 4"),
        ({"transfers": (2.0, 1.0)}, "transfers are to be from 2.0 to 1.0"),
    ],
)
def test_wrong_settings_are_refused_by_one_sentence(wrong: dict[str, tuple[str, ...]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        World(**wrong)  # type: ignore[arg-type]
