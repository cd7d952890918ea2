"""Placing again what runs: what is moved, what a plan is then worth, and the environment of it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from envs.files.plan_file import save_plan
from envs.gym.replacement import ReplacementEnv
from envs.objectives import evaluate_objective, evaluator_of
from envs.objectives.replacement import replacing
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.replacement.evaluator import ReplacementEvaluator
from envs.replacement.kept import kept, kept_placements
from envs.replacement.running import CHECKPOINT, LEFT, STEPS, Running, stored_bytes
from envs.simulation.simulator import Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints, Phase
from graphs.problem import Problem, objective_of
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

ID = "envs:Replacement-v0"


def three_weights() -> Problem:
    """Ops 0 and 1 read weight 0, op 2 reads weight 1, op 3 weight 2; a byte a second between three devices."""
    graph = toy_graph([1, 1, 1, 1], [], weights=[8, 4, 2], weight_uses=[(0, 0), (1, 0), (2, 1), (3, 2)])
    return Problem(graph, toy_cluster(3), "none")


def evaluator(
    problem: Problem, runs: list[int], steps: float = STEPS, checkpoint: float = CHECKPOINT
) -> ReplacementEvaluator:
    found = evaluator_of(replacing(problem, Running(np.array(runs), steps, checkpoint)))
    assert isinstance(found, ReplacementEvaluator)
    return found


@pytest.mark.parametrize(
    ("placement", "moved_bytes", "seconds"),
    [
        ([0, 0, 1, 2], 0, 0),
        ([0, 1, 1, 2], 8, 8),  # a weight is needed on two devices, and one of them has it
        ([1, 1, 1, 2], 8, 8),  # and is moved once for two ops of a device
        ([1, 1, 0, 2], 12, 8),  # both ways at once
        ([1, 1, 1, 1], 10, 8),  # into one device from two others, whose links are apart
        ([0, 0, 0, 0], 6, 4),
        ([2, 0, 2, 2], 12, 8),
    ],
)
def test_what_moves_by_hand(placement: list[int], moved_bytes: float, seconds: float) -> None:
    found = evaluator(three_weights(), [0, 0, 1, 2], steps=1).moves([placement])
    assert found[1].tolist() == [moved_bytes]
    assert found[0].tolist() == [pytest.approx(seconds)]


def test_what_no_device_holds_comes_from_a_checkpoint_and_each_device_reads_by_itself() -> None:
    of = evaluator(three_weights(), [LEFT, 0, LEFT, LEFT], steps=2, checkpoint=0.5)
    seconds, moved_bytes = of.moves([[0, 0, 1, 2], [0, 0, 1, 1], [1, 0, 0, 0]])
    assert moved_bytes.tolist() == [6, 6, 14]  # weight 0 is still on device 0, where op 1 runs
    assert seconds.tolist() == [8 / 2, 12 / 2, 12 / 2]


def test_a_plan_is_worth_its_step_and_its_share_of_the_moves() -> None:
    problem, placements = three_weights(), np.array([[0, 0, 1, 2], [1, 1, 0, 2], [2, 2, 2, 2]])
    step, of = Simulator(problem).run_batch(placements), evaluator(problem, [0, 0, 1, 2], steps=4)
    expected = step.step_seconds + np.array([0, 8, 8]) / 4
    assert of.seconds(placements).tolist() == of.run_batch(placements).step_seconds.tolist() == expected.tolist()
    assert of.run_batch(placements).peak_bytes.tolist() == step.peak_bytes.tolist()
    plan = Plan.of(placements[1])
    assert evaluate_objective(replacing(problem, of.running), plan) == expected[1]


@pytest.mark.parametrize(("optimizer", "times"), [("none", 1), ("sgd", 1), ("momentum", 2), ("adam", 3)])
def test_weights_move_with_the_state_of_the_optimizer_and_without_gradients(optimizer: str, times: int) -> None:
    forward = toy_graph([1, 1], [(0, 1)], weights=[8], weight_uses=[(0, 0)])
    graph = replace(forward, phase=np.array([Phase.FORWARD, Phase.UPDATE]), mirror=np.array([-1, 0]))
    assert stored_bytes(Problem(graph, toy_cluster(2), optimizer)).tolist() == [8 * times]


def test_all_that_can_stay_is_kept_and_the_rest_is_together_where_that_is_best() -> None:
    problem = three_weights()
    running = Running(np.array([LEFT, LEFT, 1, 2]))
    assert kept_placements(problem, running).tolist() == [[0, 0, 1, 2], [1, 1, 1, 2], [2, 2, 1, 2]]
    assert kept(evaluator(problem, [LEFT, LEFT, 1, 2])).tolist() == [0, 0, 1, 2]
    assert kept_placements(problem, Running(np.array([0, 1, 1, 2]))).tolist() == [[0, 1, 1, 2]]


def test_a_plan_file_says_what_runs_by_the_names_of_devices(tmp_path: Path) -> None:
    before, file = three_weights(), tmp_path / "running.plan.json"
    plan = Plan.of([0, 0, 1, 2])
    save_plan(PlacerResult(plan), before, Simulator(before).timeline([0, 0, 1, 2]), file)
    fewer = toy_cluster(2)
    names = tuple(replace(device, name=f"gpu:{number}") for device, number in zip(fewer.devices, (0, 2), strict=True))
    assert [device.name for device in before.cluster.devices] == ["gpu:0", "gpu:1", "gpu:2"]
    problem = replace(
        before, cluster=replace(fewer, devices=names), objective=objective_of(f"replacement:plan={file},steps=7")
    )
    found = evaluator_of(problem)
    assert isinstance(found, ReplacementEvaluator)
    assert found.running.placement.tolist() == [0, 0, LEFT, 1]
    assert found.running.steps == 7


def bytes_by_hand(problem: Problem, runs: Ints, goes: Ints) -> float:
    """What moves where ops, (ops,), run on some devices and go to others, by loops over sets."""
    uses, sizes = problem.graph.weight_uses.tolist(), stored_bytes(problem)
    return sum(
        float(sizes[weight])
        for device in range(len(problem.cluster))
        for weight in {weight for op, weight in uses if goes[op] == device}
        - {weight for op, weight in uses if runs[op] == device}
    )


def test_ops_that_ran_apart_are_counted_each_where_it_ran_in_whatever_groups_they_are_now() -> None:
    rng = np.random.default_rng(0)
    for seed in range(20):
        graph = replace(random_graph(12, seed), group=rng.integers(0, 5, 12))
        problem = Problem(graph, toy_cluster(3), "adam")
        running = Running.of_ops(problem, rng.integers(LEFT, 3, 12))
        assert running.op_placement is not None
        found = evaluator_of(replacing(problem, running))
        assert isinstance(found, ReplacementEvaluator)
        placements = rng.integers(0, 3, (4, len(problem.units)))
        expected = [bytes_by_hand(problem, running.op_placement, each[graph.units]) for each in placements]
        assert found.moves(placements)[1].tolist() == expected


def test_a_plan_of_ops_that_are_tied_now_is_read_op_by_op(tmp_path: Path) -> None:
    before, file = three_weights(), tmp_path / "running.plan.json"
    save_plan(PlacerResult(Plan.of([0, 1, 1, 2])), before, Simulator(before).timeline([0, 1, 1, 2]), file)
    tied = replace(before, graph=replace(before.graph, group=np.array([0, 1, 0, 0])))
    found = evaluator_of(replace(tied, objective=objective_of(f"replacement:plan={file}")))
    assert isinstance(found, ReplacementEvaluator)
    assert found.running.placement.tolist() == [0, 1]
    assert found.moves([[0, 1], [1, 1]])[1].tolist() == [4 + 2, 2]  # device 1 has weights 0 and 1


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    problem = three_weights()
    with pytest.raises(InputError, match="steps is 0; expected a number > 0"):
        Running(np.zeros(4, np.int64), steps=0)
    with pytest.raises(InputError, match=r"^checkpoint is -1; expected"):
        Running(np.zeros(4, np.int64), checkpoint=-1)
    with pytest.raises(InputError, match="the 4 ops of"):
        replacing(problem, Running(np.zeros(4, np.int64), op_placement=np.full(4, 3)))
    with pytest.raises(InputError, match="one of 3 devices, or -1"):
        replacing(problem, Running(np.full(4, 3)))
    with pytest.raises(InputError, match="name the plan that runs"):
        ReplacementEnv(problem)
    with pytest.raises(InputError, match="gone"):
        replace(problem, objective=objective_of(f"replacement:plan={tmp_path / 'gone.plan.json'}")).objective.loaded()
    other, file = Problem(toy_graph([1] * 5, []), toy_cluster(3)), tmp_path / "step.plan.json"
    save_plan(PlacerResult(Plan.of([0] * 4 + [1])), other, Simulator(other).timeline([0] * 4 + [1]), file)
    with pytest.raises(InputError, match="'toy' is a forward pass alone, and this plan is not of it; name one for"):
        evaluator_of(replace(problem, objective=objective_of(f"replacement:plan={file}")))
    several = Plan(((0, 1), (0, 1), (0, 1), (0, 1)))
    with pytest.raises(InputError, match="op placements only"):
        evaluate_objective(replacing(problem, Running(np.zeros(4, np.int64))), several)


# ---- the environment ---------------------------------------------------------------------------------------------


@pytest.fixture
def problems() -> list[Problem]:
    """Two sizes on three devices; some units have lost theirs."""
    graphs = [random_graph(size, size) for size in (5, 9)]
    runs: list[Ints] = [np.arange(size) % 4 - 1 for size in (5, 9)]
    return [
        replacing(Problem(graph, toy_cluster(3)), Running(run, 10.0)) for graph, run in zip(graphs, runs, strict=True)
    ]


@pytest.mark.parametrize("obs", ["ids", "dict", "graph"])
def test_the_checkers_accept_it(obs: str, problems: list[Problem]) -> None:
    env = gym.make(ID, problems=problems, obs=obs, render_mode="ansi").unwrapped
    check_env(env)
    if obs != "graph":
        check_env_for_sb3(env)


def test_an_agent_that_keeps_all_that_can_stay_is_paid_nothing(problems: list[Problem]) -> None:
    env = ReplacementEnv(problems)
    _, first = env.reset(seed=0, options={"problem": 1})
    rewards, ended = [], False
    while not ended:
        device = int(env.placement[env.progress.current])
        assert env.action_masks()[device]
        _, reward, ended, _, info = env.step(device)
        rewards.append(reward)
    found = evaluator_of(problems[1])
    assert isinstance(found, ReplacementEvaluator)
    stays = kept(found)
    assert env.placement.tolist() == stays.tolist()
    assert rewards == [0.0] * 9
    assert info["objective_seconds"] == first["objective_seconds"] == found.seconds(stays[None])[0]
    assert info["moved_bytes"] == found.moves(stays[None])[1][0]
    assert info["step_seconds"] == pytest.approx(info["objective_seconds"] - info["moving_seconds"] / 10)


def test_what_a_random_agent_is_paid_adds_up_to_what_the_objective_gains(problems: list[Problem]) -> None:
    env = ReplacementEnv(problems)
    env.action_space.seed(1)
    _, first = env.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, last = env.step(env.action_space.sample())
        total += reward
    assert total == pytest.approx(min(first["objective_seconds"], 10) - min(last["objective_seconds"], 10))


def test_episodes_in_processes_are_those_of_one_process(problems: list[Problem]) -> None:
    """An environment is pickled to get there."""
    both = [
        gym.make_vec(ID, num_envs=2, vectorization_mode=mode, problems=problems[:1], obs="dict")
        for mode in ("sync", "async")
    ]
    actions = np.random.default_rng(0).integers(0, 3, (7, 2))
    found = []
    for envs in both:
        envs.reset(seed=3)
        steps = [envs.step(each) for each in actions]
        found.append(
            [(reward.tolist(), ended.tolist(), info["moved_bytes"].tolist()) for _, reward, ended, _, info in steps]
        )
        envs.close()
    assert found[0] == found[1]


def test_an_episode_goes_on_where_it_was_pickled(problems: list[Problem]) -> None:
    env = ReplacementEnv(problems)
    env.reset(seed=5)
    env.step(2)
    again = pickle.loads(pickle.dumps(env))
    ended = False
    while not ended:
        (_, reward, ended, _, info), (_, *there) = env.step(1), again.step(1)
        assert (reward, ended, info["moved_bytes"]) == (there[0], there[1], there[3]["moved_bytes"])
    assert env.placement.tolist() == again.placement.tolist()


@pytest.mark.parametrize("action", [-1, 3, 0.5, None, "gpu:0"])
def test_actions_that_are_no_device_are_refused(action: object, problems: list[Problem]) -> None:
    env = ReplacementEnv(problems)
    env.reset(seed=0)
    with pytest.raises(InputError, match="expected a device from 0 to 2"):
        env.step(action)


def test_a_graph_of_which_nothing_runs_is_refused(problems: list[Problem]) -> None:
    env = ReplacementEnv(problems)
    with pytest.raises(InputError, match="nothing is known to run of 'random7"):
        env.reset(seed=0, options={"graph": random_graph(7, 1)})


def test_units_show_where_they_run_and_what_they_would_move() -> None:
    problem = replacing(three_weights(), Running(np.array([LEFT, 0, 1, 2])))
    env = ReplacementEnv(problem, obs="graph")
    observation, _ = env.reset(seed=0)
    assert observation.nodes.shape == (4, 3 * 3 + 5)
    assert observation.nodes[:, 2 * 3 + 4 :].tolist() == [[0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 0, 0.5], [0, 0, 1, 0.25]]
