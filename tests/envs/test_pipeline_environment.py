"""The environment over plans that are pipelines: what the checkers want, and what the engine says of its plans."""

from __future__ import annotations

import re
from math import log
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from envs.gym.pipeline_observations import DEVICE_COLUMNS, LAYER_COLUMNS, LINK_COLUMNS, PAIR_COLUMNS
from envs.gym.pipeline_plans import PipelinePlanEnv
from envs.gym.pipeline_problem import PipelineProblem
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.random_plans import step_graphs
from tests.oracle.strategies import clusters
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

ID = "envs:PipelinePlan-v0"


def unequal(memory: float = 1e6) -> Cluster:
    """Three devices of different speeds and memory, the first with the least; a link of each pair."""
    devices = tuple(Device(f"d{i}", "gpu", 1.0 + i, 1.0, memory * (1 + i)) for i in range(3))
    even = toy_cluster(3)
    return Cluster("unequal", devices, even.latency, 10 * even.bandwidth, even.channel)


def chain(stages: int, cluster: Cluster) -> Problem:
    """Training steps whose backward passes have two parts, in 8 samples that nobody knows of."""
    return Pipeline(stages, 8, forward=1, backward=2, weight_gradient=1, activation=3, gradient=3, weights=5).problem(
        cluster, optimizer="adam"
    )


@pytest.fixture
def problems() -> list[Problem]:
    """Several families, sizes and numbers of devices, one of them with unequal ones."""
    return [
        chain(3, servers(2, bandwidth=10.0)), chain(9, servers(4, bandwidth=1.0)), chain(6, unequal()),
        Problem(random_graph(14, 3), toy_cluster(1)), Problem(random_graph(20, 5), unequal()),
    ]  # fmt: skip


def test_what_it_shows_is_between_0_and_1(problems: list[Problem]) -> None:
    shown = PipelinePlanEnv(problems).observation_space
    assert isinstance(shown, gym.spaces.Dict)
    for name, space in shown.spaces.items():
        assert isinstance(space, gym.spaces.Box)
        assert ((space.low == 0) & (space.high == 1)).all(), name


def played(env: PipelinePlanEnv, seed: int, **options: Any) -> tuple[float, dict[str, Any]]:
    """The reward and the last info of an episode of actions drawn from the mask."""
    rng = np.random.default_rng(seed)
    observation, _ = env.reset(seed=seed, options=options)
    total, ended = 0.0, False
    while not ended:
        assert observation["mask"].tolist() == env.action_masks().tolist()
        observation, reward, ended, truncated, info = env.step(rng.choice(np.flatnonzero(observation["mask"])))
        assert env.observation_space.contains(observation)
        assert not truncated
        assert ended or not reward
        total += reward
    return total, info


@pytest.mark.parametrize("knobs", [{}, {"layers": 4, "max_devices": 6}, {"grain": "ops", "reward": "terminal"}])
def test_both_checkers_accept_it(knobs: dict[str, Any], problems: list[Problem]) -> None:
    check_env(gym.make(ID, problems=problems, render_mode="ansi", **knobs).unwrapped)
    check_env_for_sb3(gym.make(ID, problems=problems, **knobs).unwrapped)


def test_an_episode_by_hand() -> None:
    # alone, two layers of four passes of a second each take 8 s; as GPipe's two stages of two micro-batches,
    # (2 + 2 - 1) (1 + 1) = 6 s (P1 of the closed forms of tests/envs/expansion/test_pipeline_times.py)
    problem = Pipeline(2, 2).problem()
    env = PipelinePlanEnv(problem, layers=2)
    observation, info = env.reset(seed=0)
    assert (info["step_seconds"], info["decision"]) == (8, "micro_batches")
    layers = observation["layers"].reshape(2, -1)
    assert dict(zip(LAYER_COLUMNS, layers[0].tolist(), strict=True)) == {
        "forward": 0.25, "backward": 0.25, "asked": 1,
        **dict.fromkeys(
            ("forward_fixed", "backward_fixed", "update", "sent", "returned", "weights", "held", "kept", "decided",
             "first", "recomputed", "replicas"), 0
        ),
    }  # fmt: skip
    actions = env.actions_of(LayerPipeline((LayerStage(0, 1, (1,)), LayerStage(1, 2, (0,))), 2, "gpipe", (1,)))
    rewards = []
    for action in actions[:-1]:
        observation, reward, ended, _, info = env.step(action)
        rewards.append(reward)
        assert not ended
    layers, devices = observation["layers"].reshape(2, -1), observation["devices"].reshape(2, -1)
    seen = [dict(zip(LAYER_COLUMNS, row, strict=True)) for row in layers.tolist()]
    assert [(row["decided"], row["first"], row["replicas"], row["asked"]) for row in seen] == [
        (1, 1, 0.5, 0),
        (1, 1, 0.5, 1),
    ]
    assert observation["pairs"].reshape(2, 2, -1)[..., 1].tolist() == [[0, 1], [1, 0]]
    assert devices[:, DEVICE_COLUMNS.index("seconds")].tolist() == [0.5, 0.5]
    assert (info["step_seconds"], info["decision"]) == (8, "recompute")
    _, reward, ended, _, info = env.step(actions[-1])
    assert ended
    # the forward pass of the last stage runs twice: each of two micro-batches takes a second more
    assert info["step_seconds"] == 8
    assert [*rewards, reward] == [0] * len(actions)
    env.reset()
    plain = env.actions_of(LayerPipeline((LayerStage(0, 1, (1,)), LayerStage(1, 2, (0,))), 2, "gpipe"))
    assert [env.step(action)[1] for action in plain][-1] == pytest.approx(log(8 / 6))
    assert env.plan == Plan(((1,), (0,), (0,), (0,), (1,), (1,), (1,), (0,)), schedule=env.plan.schedule)
    assert env.action_masks().all(), "the next action is void"
    with pytest.raises(InputError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize("seed", range(12))
def test_the_reward_is_what_the_engine_says_of_the_plan(seed: int, problems: list[Problem]) -> None:
    stages, ops = (PipelinePlanEnv(problems, layers=7, grain=grain) for grain in ("stages", "ops"))
    (by_stages, coarse), (by_ops, fine) = (played(env, seed) for env in (stages, ops))
    assert stages.plan == ops.plan
    problem = stages.episode.problem.problem
    fastest = PreparedProblem(problem).fastest_device
    alone = simulate(problem, Plan.of_units(problem, [fastest] * len(problem.units))).step_seconds
    timeline = simulate(problem, ops.plan)
    assert fine["step_seconds"] == timeline.step_seconds
    assert fine["fits"] == timeline.fits
    assert fine["peak_bytes"][: len(problem.cluster)].tolist() == timeline.peak_bytes.tolist()
    assert by_ops == log(alone / timeline.step_seconds)
    if not stages.plan.is_placement:
        layers = Layers.of(problem, 7, (fastest,))
        outcome = LayerGrain(problem, layers).outcome(stages.episode.construction.pipeline)
        assert coarse["step_seconds"] == outcome.step_seconds
        assert by_stages == log(alone / outcome.step_seconds)


@given(graph=step_graphs(most_ops=6), cluster=clusters(3), seed=st.integers(0, 99))
@settings(max_examples=examples(20, 8), deadline=None)
def test_random_episodes_over_random_steps_make_plans_that_run(graph: Any, cluster: Any, seed: int) -> None:
    problem = Problem(graph[0], cluster, "sgd", op_seconds=np.repeat(graph[0].flops[:, None], 3, axis=1))
    env = PipelinePlanEnv(problem, layers=4, grain="ops")
    _, info = played(env, seed)
    assert "refused" not in info
    pipeline = env.episode.construction.pipeline
    assert pipeline.plan(problem, env.problems[0].layers) == env.plan
    assert simulate(problem, env.plan).step_seconds == info["step_seconds"]
    _, again = replayed(env, env.actions_of(pipeline))
    assert again["step_seconds"] == info["step_seconds"]


def replayed(env: PipelinePlanEnv, actions: list[int]) -> tuple[list[bool], dict[str, Any]]:
    """Of each action whether the mask allows it, and the last info."""
    _, info = env.reset(options={"problem": 0})
    allowed = []
    for action in actions:
        allowed.append(bool(env.action_masks()[action]))
        *_, info = env.step(action)
    return allowed, info


def test_equal_seeds_give_equal_episodes(problems: list[Problem]) -> None:
    env, other = (PipelinePlanEnv(problems, layers=5) for _ in range(2))
    for seed in range(4):
        (first, _), (second, _) = env.reset(seed=seed), other.reset(seed=seed)
        assert {key: value.tolist() for key, value in first.items()} == {
            key: value.tolist() for key, value in second.items()
        }
        rewards = [played(each, seed) for each in (env, other)]
        assert rewards[0][0] == rewards[1][0]
        assert env.plan == other.plan
    assert {int(env.reset(seed=seed)[0]["layer_exists"].sum()) for seed in range(20)} == {3, 5}


@pytest.mark.parametrize(("reward", "paid"), [("speedup", -10), ("square_root", -10), ("terminal", -10)])
def test_what_is_not_possible_ends_the_episode_as_a_plan_that_does_not_fit(reward: str, paid: float) -> None:
    env = PipelinePlanEnv(chain(3, servers(2)), reward=reward)
    env.reset(seed=0)
    _, got, ended, _, info = env.step(env.actions.recompute)
    assert (got, ended, info["fits"], info["step_seconds"]) == (paid, True, False, np.inf)
    assert info["refused"].startswith("the action is 'recompute'; expected one of: 1 micro-batch, 2 micro-batches")
    with pytest.raises(InputError, match="call reset"):
        env.step(0)
    with pytest.raises(InputError, match="expected a number from 0 to"):
        env.step(len(env.actions))


def test_a_plan_that_does_not_fit_costs_ten() -> None:
    problem = chain(3, servers(2, memory=50.0))  # three weights of 20 bytes with their optimizer state
    env = PipelinePlanEnv(problem, layers=3)
    env.reset(seed=0)
    actions = env.actions_of(LayerPipeline((LayerStage(0, 3, (0,)),), 1, "gpipe"))
    steps = [env.step(action) for action in actions]
    assert [step[1] for step in steps][-1] == -10
    assert not steps[-1][4]["fits"]


def test_masks_leave_out_what_has_no_room_for_weights() -> None:
    cluster = unequal(memory=9.0)  # for 9, 18 and 27 bytes; each of three weights with its state takes 15 all step long
    env = PipelinePlanEnv(chain(3, cluster), layers=3)
    env.reset(seed=0)
    actions = env.actions
    for action in (0, actions.first_order):
        env.step(action)
    offered = np.flatnonzero(env.action_masks()) - actions.first_device
    assert offered.tolist() == [1, 2], "the first device has no room for a single weight"
    for action in (actions.first_device + 2, actions.enough):
        env.step(action)
    assert (np.flatnonzero(env.action_masks()) - actions.first_end).tolist() == [0], "two weights have no room"
    env.step(actions.first_end + 1)  # it may be tried
    assert env.episode.construction.stages[0].end == 2


@given(seed=st.integers(0, 300), memory=st.sampled_from([30.0, 60.0, 120.0]))
@settings(max_examples=examples(20, 8), deadline=None)
def test_no_plan_that_fits_needs_what_a_mask_leaves_out(seed: int, memory: float) -> None:
    problem = Problem(random_graph(9, seed), toy_cluster(3, memory=memory))  # ops share weights
    env = PipelinePlanEnv(problem, layers=5, grain="ops")
    rng, ended, taken = np.random.default_rng(seed), False, []
    env.reset(seed=seed)
    while not ended:
        taken.append(int(rng.choice(np.flatnonzero(env.episode.construction.legal()))))
        _, _, ended, _, info = env.step(taken[-1])
    allowed, _ = replayed(env, taken)
    assert all(allowed) or not info["fits"]


def test_weights_that_layers_share_are_held_once_by_brute_force() -> None:
    problem = Problem(random_graph(12, 4), toy_cluster(2))
    ours = PipelineProblem(PreparedProblem(problem), 6, "stages")
    for first in range(6):
        for end in range(first + 1, 7):
            inside = (first <= ours.layer_of_op) & (ours.layer_of_op < end)
            used = {int(weight) for op, weight in problem.graph.weight_uses if inside[op]}
            assert ours.weight_bytes[first, end] == sum(problem.weight_memory.bytes[weight] for weight in used)


def test_observations_do_not_depend_on_padding(problems: list[Problem]) -> None:
    tight, padded = PipelinePlanEnv(problems[1], layers=9), PipelinePlanEnv(problems[1], layers=12, max_devices=7)
    for env in (tight, padded):
        env.reset(seed=0)
        env.step(3)
    seen, wide = (env.shown(env.episode)[0] for env in (tight, padded))
    assert np.array_equal(seen["layers"].reshape(9, -1), wide["layers"].reshape(12, -1)[:9])
    assert np.array_equal(seen["devices"].reshape(4, -1), wide["devices"].reshape(7, -1)[:4])
    assert np.array_equal(seen["links"].reshape(4, 4, -1), wide["links"].reshape(7, 7, -1)[:4, :4])
    assert np.array_equal(seen["pairs"].reshape(9, 4, -1), wide["pairs"].reshape(12, 7, -1)[:9, :4])
    assert seen["schedule"].tolist() == wide["schedule"].tolist()
    for key, size in (("layers", (12, len(LAYER_COLUMNS))), ("devices", (7, len(DEVICE_COLUMNS)))):
        rows = wide[key].reshape(size)
        assert not rows[int(wide[f"{key[:-1]}_exists"].sum()) :].any()
    assert wide["pairs"].shape == (12 * 7 * len(PAIR_COLUMNS),)
    assert wide["links"].shape == (7 * 7 * len(LINK_COLUMNS),)


def test_unequal_devices_and_links_are_shown() -> None:
    env = PipelinePlanEnv(chain(2, unequal()), layers=2)
    observation, info = env.reset(seed=0)
    devices = observation["devices"].reshape(3, -1)
    assert np.allclose(devices[:, DEVICE_COLUMNS.index("speed")], [1 / 3, 2 / 3, 1])
    # 5 bytes of weights of two layers with their gradients and Adam's state, and activations of 3 bytes of 8
    total = 2 * 20 + 2 * 24
    assert np.allclose(devices[:, DEVICE_COLUMNS.index("memory")], [m / (m + total) for m in (1e6, 2e6, 3e6)])
    step = info["step_seconds"]
    links = observation["links"].reshape(3, 3, -1)
    assert np.allclose(links[0, 1], [2.4 / (2.4 + step), 1 / (1 + step)])  # 24 and 10 bytes at 10 bytes/s
    assert not links[1, 1].any()


def test_a_graph_that_it_was_not_made_with_can_be_planned(problems: list[Problem]) -> None:
    env = PipelinePlanEnv(problems, layers=6)
    new = chain(12, servers(2)).graph
    _, info = env.reset(options={"graph": new})
    assert info["problem"] == f"{new.name}@{problems[0].cluster.name}"
    assert len(env.episode.problem.layers) == len(Layers.of(Problem(new, problems[0].cluster), 6))
    assert env.episode.index == -1


def test_a_plan_is_rendered() -> None:
    text, pixels, nothing = (PipelinePlanEnv(chain(3, servers(2)), render_mode=m) for m in ("ansi", "rgb_array", None))
    for env in (text, pixels, nothing):
        env.reset(seed=0)
    assert text.render().startswith("gpu:0")
    assert pixels.render().shape[2] == 3
    assert nothing.render() is None
    actions = text.actions_of(LayerPipeline((LayerStage(0, 1, (0,)), LayerStage(1, 3, (1,))), 4, "gpipe"))
    for action in actions:
        text.step(action)
    assert text.render() == simulate(text.problems[0].problem, text.plan).draw()


def test_wrong_arguments_are_explained(problems: list[Problem]) -> None:
    bound = toy_graph([1, 1], [(0, 1)])
    object.__setattr__(bound, "devices", ((), ("gpu:0",)))
    for arguments, sentence in (
        ({}, "either problems=, or graph= and cluster="),
        ({"layers": 0}, "layers is 0; expected 1 or more"),
        ({"micro_batches": (2, 0)}, "micro_batches is 0"),
        ({"micro_batches": ()}, "micro_batches is 0"),
        ({"pass_orders": ("gpip",)}, "did you mean 'gpipe'"),
        ({"grain": "op"}, "grain is 'op'; expected 'stages' or 'ops'"),
        ({"sharing": "turn"}, "sharing is 'turn'; expected 'split' or 'turns'"),
        ({"max_devices": 2}, "max_devices is 2, but the largest cluster has 4 devices"),
        ({"reward": "speed"}, "unknown reward 'speed'; did you mean 'speedup'"),
        ({"problems": Problem(bound, toy_cluster(2))}, "op 'b' of 'toy' may only run on gpu:0; use an environment"),
    ):
        with pytest.raises(InputError, match=sentence):
            PipelinePlanEnv(**({"problems": problems} if arguments else {}) | arguments)
    with pytest.raises(InputError, match="unknown reset option 'prblem'"):
        PipelinePlanEnv(problems).reset(options={"prblem": 1})
    with pytest.raises(InputError, match="no pipeline can be made of the 3 layers"):
        PipelinePlanEnv(problems[0], micro_batches=(1,), pass_orders=("dualpipe_v",)).reset()


def test_orders_that_run_weight_gradients_apart_need_a_graph_that_keeps_them_apart() -> None:
    # two layers; the backward op of the second gives both the gradient of its input and that of its weights
    edges = np.array([(0, 1), (1, 2), (2, 3), (2, 4), (3, 5)])
    together = OpGraph(
        "together", ("f0", "f1", "b1", "b0", "u1", "u0"), ("toy",) * 6, np.ones(6), np.zeros(6), np.ones(6), edges,
        weights=np.ones(2), weight_uses=np.array([(0, 0), (1, 1), (2, 1), (3, 0), (4, 1), (5, 0)]),
        phase=np.array([Phase.FORWARD] * 2 + [Phase.BACKWARD] * 2 + [Phase.UPDATE] * 2),
        mirror=np.array([-1, -1, 1, 0, 1, 0]),
    )  # fmt: skip
    offered = []
    for problem in (chain(2, servers(2)), Problem(together, servers(2))):
        env = PipelinePlanEnv(problem)
        env.reset(seed=0)
        env.step(2)
        offered.append([env.actions.name(action) for action in np.flatnonzero(env.action_masks()).tolist()])
    assert [order for order in offered[0] if order not in offered[1]] == ["order zb_h1", "order zb_v"]


def test_the_example_of_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "plans.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example, "plans.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert f"# {', '.join(said[:4])}, ..." in example
    assert re.fullmatch(r"0\.\d{4} s a step", said[-1])
