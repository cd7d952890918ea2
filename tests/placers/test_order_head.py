"""The order head: an untrained one changes nothing, what it sees is true, and what it draws is what is simulated."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.orders import priorities_of
from envs.simulation.simulator import Simulator, simulate
from evaluation.commands.load_placer import load_placer
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.op_graph.parts import AWAITED, FORWARD, UNAWAITED, UPDATE, Parts
from graphs.problem import STEP_TIME, Problem, objective_of
from graphs.runtime import IDEAL, LONGEST_PATH
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.policy_file import load_policy, save_policy
from placers.learned.policy_meta import Meta
from placers.learned.sequential.action import SequentialAction
from placers.learned.sequential.coarse import MOST_UNITS, in_groups
from placers.learned.sequential.order_head import NOISE, PartBatch
from placers.learned.sequential.placer import SequentialPlacer
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.precedence import ORDER_FEATURES, Precedence
from placers.learned.settings import Imitation, Ppo
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold
from training.learning.ppo import PpoTrainer
from training.runs.finetune import FineTuner

ORDERS = f"{NETWORK},orders=true"


def random_problem(seed: int, ops: int = 15, devices: int = 3) -> Problem:
    return Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=1e4, latency=0.5))


def drawn(
    policy: SequentialPolicy, *problems: Problem, samples: int = 4
) -> tuple[SequentialAction, list[Floats | None]]:
    batch = policy.stack([policy.view(problem) for problem in problems])
    action = policy.act(batch, samples, torch.Generator().manual_seed(0))
    return action, policy.drawn_orders(batch, action)


def precedence_of(problem: Problem) -> Precedence:
    found = Precedence.of(problem, costs_of(problem))
    assert found is not None
    return found


def feature(problem: Problem, name: str, placement: list[int]) -> list[float]:
    """What the head sees of every part under a placement."""
    column = precedence_of(problem).features(np.array([placement]))[0, :, ORDER_FEATURES.index(name)]
    return [round(float(value), 4) for value in column]


def meta_of(policy: SequentialPolicy) -> Meta:
    return Meta(
        placer="sequential", network=ORDERS, seed=0, decoder_features=policy.decoder_features,
        order_features=policy.order_features,
    )  # fmt: skip


# ---- what a policy without the head, or with an untrained one, does ------------------------------------------------


def test_the_head_changes_no_weight_and_no_draw_of_the_rest() -> None:
    without, with_head = SequentialPolicy.new(NETWORK, 3), SequentialPolicy.new(ORDERS, 3)
    weights = with_head.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in without.state_dict().items())
    problem = random_problem(1)
    assert torch.equal(drawn(without, problem)[0].devices, drawn(with_head, problem)[0].devices)
    assert drawn(without, problem)[1] == [None]


@settings(max_examples=examples(25, 10), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(1, 4))
def test_an_untrained_head_gives_the_order_of_the_rule(seed: int, ops: int, devices: int) -> None:
    problem = random_problem(seed, ops, devices)
    placements = np.random.default_rng(seed).integers(devices, size=(3, ops))
    orders = SequentialPolicy.new(ORDERS, seed).likely_orders(problem, placements)
    assert orders is not None
    for order in orders:
        np.testing.assert_array_equal(order, priorities_of(problem))


@pytest.mark.parametrize(("order", "objective"), [("fifo", STEP_TIME), ("program", STEP_TIME), ("", "max-load")])
def test_where_there_is_no_longest_path_to_depart_from_plans_keep_the_rule(order: str, objective: str) -> None:
    problem = replace(
        random_problem(1), runtime=IDEAL.with_knobs(order=order or LONGEST_PATH), objective=objective_of(objective)
    )
    policy = bold(0, ORDERS, spread=0.1)
    assert policy.likely_orders(problem, np.zeros((1, 15), np.int64)) is None
    action, orders = drawn(policy, random_problem(2, 9), problem)
    first, second = orders
    assert first is not None
    assert first.shape == (4, 9)
    assert second is None
    scores = policy.score(policy.stack([policy.view(random_problem(2, 9)), policy.view(problem)]), action)
    assert scores.mask[:, -9:].tolist() == [[True] * 9, [False] * 9]
    assert LearnedPlacer(policy, "ours").place(problem, budget=3).plan.order is None


# ---- parts and features --------------------------------------------------------------------------------------------


def training_graph() -> OpGraph:
    """Two layers a, b with a weight each: gradients of outputs and weights, and updates.

    a -> b -> gb -> ga;  b, gb -> wb -> ub;  ga -> wa -> ua
    """
    graph = toy_graph(
        [1, 2, 2, 1, 3, 4, 1, 1], [(0, 1), (1, 2), (2, 3), (2, 4), (3, 5), (4, 6), (5, 7)],
        group=[0, 1, 1, 0, 1, 0, 1, 0],
    )  # fmt: skip
    phase = np.array([0, 0, 1, 1, 1, 1, 2, 2])
    assert int(Phase.UPDATE) == 2
    return replace(graph, phase=phase)


def test_the_parts_of_a_unit_are_its_ops_that_are_about_as_urgent() -> None:
    parts = Parts.of(training_graph())
    assert parts.unit.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert parts.kind.tolist() == [FORWARD, AWAITED, UNAWAITED, UPDATE] * 2
    assert parts.of_op.tolist() == [0, 4, 5, 1, 6, 2, 7, 3]


@given(st.integers(0, 10_000), st.integers(1, 20))
def test_every_op_is_in_one_part_of_its_unit(seed: int, ops: int) -> None:
    graph = random_graph(ops, seed=seed)
    parts = Parts.of(graph)
    assert sorted(parts.ops.tolist()) == list(range(ops))
    assert (parts.unit[parts.of_op] == graph.units).all()


def slow_sweeps(problem: Problem, placement: Ints) -> tuple[list[float], list[float]]:
    """(ops,) the earliest start and the path to the end, with all transfers, by recursion."""
    graph, cluster, seconds = problem.graph, problem.cluster, costs_of(problem).busy_seconds(problem)
    edges = [(int(a), int(b)) for a, b in graph.edges]

    def transfer(producer: int, consumer: int) -> float:
        a, b = placement[graph.units[producer]], placement[graph.units[consumer]]
        return 0.0 if a == b else float(cluster.latency[a, b] + graph.output_bytes[producer] / cluster.bandwidth[a, b])

    def own(op: int) -> float:
        return float(seconds[op, placement[graph.units[op]]])

    def start(op: int) -> float:
        return max((start(a) + own(a) + transfer(a, op) for a, b in edges if b == op), default=0.0)

    def path(op: int) -> float:
        return own(op) + max((transfer(op, b) + path(b) for a, b in edges if a == op), default=0.0)

    return [start(op) for op in range(len(graph))], [path(op) for op in range(len(graph))]


@settings(max_examples=examples(25, 10), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 3))
def test_paths_under_a_placement_are_those_of_a_slow_recursion(seed: int, ops: int, devices: int) -> None:
    problem = random_problem(seed, ops, devices)
    placement = np.random.default_rng(seed).integers(devices, size=ops)
    start, path = slow_sweeps(problem, placement)
    precedence = precedence_of(problem)
    length = max(max(np.add(start, path)), precedence.scale)
    seen = dict(zip(ORDER_FEATURES, precedence.features(placement[None])[0].T, strict=True))
    parts = precedence.parts
    assert np.diff(parts.offsets).tolist() == [1] * ops, "an op each"
    np.testing.assert_allclose(seen["start"][parts.of_op] * length, start, rtol=1e-5, atol=1e-5 * length)
    np.testing.assert_allclose(seen["slack"][parts.of_op], 1 - np.add(start, path) / length, atol=1e-5)
    ratio = np.log((np.array(path) + 1e-6 * precedence.scale) / (1e-6 * precedence.scale - precedence.rule))
    np.testing.assert_allclose(seen["path_over_rank"][parts.of_op], np.clip(ratio, -5, 5), atol=1e-5)


def test_features_of_a_diamond() -> None:
    """On two devices a second apart: op 1, 3 s, stays with op 0; op 2, 3 s, and op 3 are on the other one."""
    problem = Problem(toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)]), toy_cluster(2))
    placement = [0, 0, 1, 1]
    assert feature(problem, "sends", placement) == [1.0, 1.0, 0.0, 0.0]
    assert feature(problem, "start", placement) == [0.0, round(1 / 6, 4), round(2 / 6, 4), round(5 / 6, 4)]
    assert feature(problem, "slack", placement) == [0.0] * 4
    assert feature(problem, "load_of_most", placement) == [1.0] * 4
    assert feature(problem, "queue_over_path", placement)[:2] == [
        round(float(np.log(4 / 6)), 4), round(float(np.log(3 / 5)), 4)
    ]  # fmt: skip
    # of the first device's ops the second is the less urgent one; behind them are paths of 6 and 5 seconds
    assert feature(problem, "queue_there_over_path", placement)[0] == round(float(np.log(4 / 6)), 4)


def test_a_single_device_has_no_transfers() -> None:
    problem = random_problem(4, 10, 1)
    for name in ("sending", "sends", "queue_there_over_path", "traffic_of_length"):
        assert not any(feature(problem, name, [0] * 10)), name


# ---- corrections ---------------------------------------------------------------------------------------------------


def test_a_correction_multiplies_the_path_of_all_ops_of_its_part() -> None:
    problem = Problem(training_graph(), toy_cluster(2))
    precedence = precedence_of(problem)
    corrections = np.zeros((1, len(precedence.parts)))
    corrections[0, 6] = np.log(2)  # the gradient of b's weight
    doubled = np.ones(8)
    doubled[4] = 2.0
    np.testing.assert_allclose(precedence.priorities(corrections)[0], precedence.rule * doubled)


def test_drawn_corrections_are_normal_around_the_heads() -> None:
    problem, policy = random_problem(1, 6), bold(0, ORDERS, spread=0.1)
    action, _ = drawn(policy, problem, samples=4000)
    assert action.corrections is not None
    assert policy.order_head is not None
    batch = policy.stack([policy.view(problem)])
    with torch.no_grad():
        likely = policy.order_head(policy(batch.encoded), batch.parts, action.corrections.features)
        away = (action.corrections.values - likely)[0] / NOISE
    assert likely.std() > 0
    np.testing.assert_allclose(away.mean(0), 0.0, atol=0.07)
    np.testing.assert_allclose(away.std(0), 1.0, atol=0.07)
    rated = policy.score(batch, action).log_probability[0, :, -6:].detach()
    torch.testing.assert_close(rated, -away.square() / 2, atol=1e-4, rtol=1e-4)


def test_samples_are_simulated_under_their_own_orders() -> None:
    problem, policy = random_problem(2), bold(1, ORDERS, spread=0.1)
    trainer = PpoTrainer(policy, [problem], Ppo(samples=6, updates=1), 0)
    trainer.update()
    best = trainer.problems[0].prepared.incumbent
    assert best.placement is not None
    assert best.priorities is not None
    assert Simulator(problem, order=best.priorities).run(best.placement).step_seconds == best.value
    generated = drawn(policy, problem)[1][0]
    assert generated is not None
    assert not np.allclose(generated[0], generated[1])


def test_two_actions_joined_keep_their_corrections_and_what_is_followed_has_none() -> None:
    policy, problem = bold(0, ORDERS, spread=0.1), random_problem(3, 8)
    batch = policy.stack([policy.view(problem)])
    action = drawn(policy, problem)[0]
    shown = policy.actions_of(batch, [np.zeros(8, np.int64)])
    both = action.cat(shown)
    assert both.corrections is not None
    assert both.corrections.values[:, 4:].isnan().all()
    orders = policy.drawn_orders(batch, both)[0]
    assert orders is not None
    np.testing.assert_array_equal(orders[4], priorities_of(problem))
    scores = policy.score(batch, both)
    assert torch.equal(scores.log_probability[:, :4], policy.score(batch, action).log_probability)
    assert not scores.log_probability[:, 4, -8:].any()
    assert scores.of_devices.sum() == 8
    assert scores.mask.sum() == 16


def test_what_is_imitated_is_the_placement_and_not_the_order() -> None:
    problem = random_problem(5, 10)

    def likelihood(network: str) -> float:
        return PpoTrainer(SequentialPolicy.new(network, 0), [problem], Ppo(), 0, Imitation(simulations=50)).imitate()

    assert likelihood(ORDERS) == pytest.approx(likelihood(NETWORK))


# ---- plans ---------------------------------------------------------------------------------------------------------


def test_a_greedy_plan_has_the_likely_order_and_takes_no_simulation() -> None:
    problem, policy = random_problem(7, 20), bold(2, ORDERS, spread=0.1)
    greedy = LearnedPlacer(policy, "ours").place(problem, budget=1)
    orders = policy.likely_orders(problem, greedy.plan.per_unit(problem)[None])
    assert orders is not None
    assert not np.allclose(orders[0], priorities_of(problem))
    np.testing.assert_array_equal(greedy.plan.order, orders[0])
    assert greedy.simulations == 0


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_several_is_compared_under_its_order_and_under_the_rule(seed: int) -> None:
    problem, policy, simulator = (
        random_problem(seed, 20),
        bold(seed, ORDERS, spread=0.1),
        Simulator(random_problem(seed, 20)),
    )
    result = LearnedPlacer(policy, "ours").place(problem, budget=8)
    candidates = policy.candidates(problem, 8, 0)[:7]
    orders = policy.likely_orders(problem, candidates)
    assert orders is not None
    ordered = simulator.run_ordered(candidates, orders)
    by_rule = simulator.run(candidates[ordered.best()]).step_seconds
    assert result.simulations == 8
    assert simulate(problem, result.plan).step_seconds == min(by_rule, ordered.step_seconds.min())
    assert (result.plan.order is None) == (by_rule < ordered.step_seconds.min())


def test_a_policy_that_orders_also_places_by_the_rule_alone(tmp_path: Path) -> None:
    policy, problem = bold(2, ORDERS, spread=0.1), random_problem(7, 20)
    save_policy(tmp_path, policy.state_dict(), meta_of(policy))
    ordered = load_placer(f"sequential:checkpoint={tmp_path},samples=1").place(problem)
    by_rule = load_placer(f"sequential:checkpoint={tmp_path},samples=1,order=no").place(problem)
    np.testing.assert_array_equal(ordered.plan.devices, by_rule.plan.devices)
    assert by_rule.plan.order is None
    assert isinstance(ordered.plan.order, tuple)
    assert by_rule.placer.endswith(",samples=1,order=no")


def test_a_large_problem_is_ordered_by_its_groups() -> None:
    problem = random_problem(3, MOST_UNITS + 50)
    policy = bold(2, ORDERS, spread=0.1)
    plan = SequentialPlacer(policy, "ours").place(problem).plan
    coarse = in_groups(problem)
    orders = policy.likely_orders(coarse, plan.per_unit(coarse)[None])
    assert orders is not None
    np.testing.assert_array_equal(plan.order, orders[0])


def test_fine_tuning_returns_the_order_with_the_placement() -> None:
    problem = random_problem(8, 12)
    tuned = FineTuner(LearnedPlacer(bold(0, ORDERS, spread=0.1), "ours")).tune(problem, simulations=80)
    assert isinstance(tuned.result.plan.order, tuple)
    assert simulate(problem, tuned.result.plan).step_seconds == tuned.history[-1][1]


def test_a_saved_policy_orders_as_before_and_one_of_other_features_is_refused(tmp_path: Path) -> None:
    policy, problem = bold(0, ORDERS, spread=0.1), random_problem(9)
    meta = meta_of(policy)
    save_policy(tmp_path, policy.state_dict(), meta)
    placements = np.zeros((1, 15), np.int64)
    once, again = (
        each.likely_orders(problem, placements) for each in (policy, load_policy(tmp_path, SequentialPolicy)[0])
    )
    assert once is not None
    assert again is not None
    np.testing.assert_array_equal(once, again)
    save_policy(tmp_path, policy.state_dict(), msgspec.structs.replace(meta, order_features=("urgency",)))
    with pytest.raises(InputError, match="other order features"):
        load_policy(tmp_path, SequentialPolicy)


# ---- learning ------------------------------------------------------------------------------------------------------


def contended() -> Problem:
    """Two outputs that one device makes: of equal longest paths, but one is awaited far away and one at home.

    a, 4 s, feeds b, 8 s, here; c, 4 s, feeds d, 6 s, on the other device, 3 s away. Here the path by the rule from a is
    longer, and a runs first: the step takes 17 s. With c first it takes 16 s, and nothing takes less.
    """
    graph = toy_graph([4, 8, 4, 6], [(0, 1), (2, 3)], output_bytes=[1, 1, 3, 1])
    return Problem(graph, toy_cluster(2))


class Fixed(SequentialPolicy):
    """It always places so."""

    placement = torch.tensor([0, 0, 0, 1])

    def act(self, batch, samples, generator):  # type: ignore[no-untyped-def]
        devices = self.placement.expand(1, samples, -1).clone()
        action = self.follow(batch, devices, torch.full_like(devices, -1))
        assert self.order_head is not None
        corrections = self.order_head.draw(self(batch.encoded), batch.parts, devices, samples, generator)
        return replace(action, corrections=corrections)


def test_ppo_learns_an_order_that_is_better_than_the_rules() -> None:
    problem, placement = contended(), Fixed.placement.numpy()
    assert Simulator(problem).run(placement).step_seconds == 17.0
    policy = Fixed.new(ORDERS, 0)
    trainer = PpoTrainer(policy, [problem], Ppo(updates=60, samples=16, learning_rate=3e-3), 0)
    for _ in range(60):
        trainer.update()
    orders = policy.likely_orders(problem, placement[None])
    assert orders is not None
    assert Simulator(problem).run_ordered(placement[None], orders).step_seconds.tolist() == [16.0]


def test_no_problem_with_an_order_leaves_no_parts() -> None:
    assert PartBatch.of([None, None]).mask.shape == (2, 0)
