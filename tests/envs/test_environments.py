"""The Gymnasium environments: what the checkers want, and what Placeto and GDP want."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from envs.gym.iterative import PlacetoEnv
from envs.gym.observations import FEATURES
from envs.gym.one_shot import GdpEnv
from envs.rewards import Penalty, penalised_seconds
from envs.simulation.simulator import Outcome, Simulator
from graphs.cluster import GIB, Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.drawn import examples
from tests.oracle.toys import Toy, random_graph, toy_cluster, toy_graph

ROOT = Path(__file__).resolve().parents[2]
IDS = ("envs:Placeto-v0", "envs:GDP-v0")


@pytest.fixture
def problems() -> list[Problem]:
    """Three sizes on three devices."""
    return [Problem(random_graph(size, size), toy_cluster(3)) for size in (5, 9, 14)]


def heavy() -> Problem:
    """An op whose weight only the first device can hold, and one whose weight none can."""
    graph = toy_graph([1, 1, 1], [(0, 1)], weights=[50, 500], weight_uses=[(1, 0), (2, 1)])
    even = toy_cluster(2, memory=40.0)
    large = Device("large", "gpu", 1.0, 1.0, 60.0)
    devices = (large, even.devices[1])
    return Problem(graph, Cluster("uneven", devices, even.latency, even.bandwidth, even.channel))


@pytest.mark.parametrize("features", ["by_device", "published", "device_free"])
@pytest.mark.parametrize("obs", ["ids", "dict", "graph"])
@pytest.mark.parametrize("name", IDS)
def test_gymnasium_accepts_them(name: str, obs: str, features: str, problems: list[Problem]) -> None:
    check_env(gym.make(name, problems=problems, obs=obs, features=features, render_mode="ansi").unwrapped)


@pytest.mark.parametrize("start", ["single", "zero", "best"])
@pytest.mark.parametrize("visits", ["random", "given"])
def test_gymnasium_accepts_every_start_and_order(start: str, visits: str, problems: list[Problem]) -> None:
    check_env(gym.make("envs:Placeto-v0", problems=problems, start=start, visits=visits, render_mode="ansi").unwrapped)


@pytest.mark.parametrize("obs", ["ids", "dict"])
@pytest.mark.parametrize("name", IDS)
def test_stable_baselines_accepts_them(name: str, obs: str, problems: list[Problem]) -> None:
    check_env_for_sb3(gym.make(name, problems=problems, obs=obs).unwrapped)


@pytest.mark.parametrize("order", ["topological", "random"])
def test_an_episode_visits_every_unit_once(order: str, problems: list[Problem]) -> None:
    env = PlacetoEnv(problems, visits=order)
    observation, _ = env.reset(seed=1, options={"problem": 2})
    visits, ended = [], False
    while not ended:
        visits.append(int(observation["current"][0]))
        assert observation["visited"].sum() == len(visits) - 1
        observation, _, ended, truncated, info = env.step(len(visits) % 3)
        assert not truncated
    assert sorted(visits) == list(range(14))
    placement = np.empty(14, np.int64)
    placement[visits] = np.arange(1, 15) % 3
    assert observation["placement"][:14].tolist() == placement.tolist() == env.placement.tolist()
    expected = Simulator(problems[2]).run(placement)
    assert info["step_seconds"] == expected.step_seconds
    assert info["peak_bytes"].tolist() == expected.peak_bytes.tolist()
    assert info["fits"] == expected.fits
    with pytest.raises(InputError, match="call reset"):
        env.step(0)


def test_units_are_visited_after_their_producers() -> None:
    env = PlacetoEnv(graph=toy_graph([1, 1, 1], [(2, 0), (0, 1)]), cluster=toy_cluster(2))
    observation, _ = env.reset(seed=0)
    visits = [int(observation["current"][0])]
    for _ in range(2):
        visits.append(int(env.step(0)[0]["current"][0]))
    assert visits == [2, 0, 1]


def test_improvements_add_up_to_the_episode_s(problems: list[Problem]) -> None:
    env = PlacetoEnv(problems[1], start="single")
    _, first = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, last = env.step(int(env.np_random.integers(3)))
        total += reward
    assert total == pytest.approx(min(first["step_seconds"], 10) - min(last["step_seconds"], 10))


def test_placeto_can_reach_the_optimum(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    env = PlacetoEnv(toy.problem, reward="terminal")
    env.reset(seed=0)
    rewards = [env.step(device)[1] for device in toy.best_placement]
    assert rewards == [0, 0, 0, -toy.best_seconds]


def test_gdp_places_all_at_once(four_ops_two_devices: Toy) -> None:
    toy = four_ops_two_devices
    env = GdpEnv([toy.problem, Problem(random_graph(9, 0), toy_cluster(2))])
    env.reset(seed=0, options={"graph": "toy"})
    action = np.array([*toy.best_placement, 1, 1, 0, 0, 1])  # the rest is padding
    _, reward, ended, _, info = env.step(action)
    assert ended
    assert reward == -np.sqrt(toy.best_seconds)
    assert info["step_seconds"] == toy.best_seconds
    with pytest.raises(InputError, match="call reset"):
        env.step(action)


def test_a_placement_that_does_not_fit_costs_ten() -> None:
    env = GdpEnv(heavy())
    env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([0, 1, 1]))
    assert not info["fits"]
    assert reward == -10


def test_masks_leave_out_devices_without_room_for_the_weights() -> None:
    env = PlacetoEnv(heavy())
    observation, _ = env.reset(seed=0)
    masks = {}
    for _ in range(3):
        masks[int(observation["current"][0])] = env.action_masks().tolist()
        observation, *_ = env.step(0)
    assert masks == {0: [True, True], 1: [True, False], 2: [True, True]}  # what fits nowhere may go anywhere
    one_shot = GdpEnv(heavy(), max_units=4)
    one_shot.reset(seed=0)
    assert one_shot.action_masks().tolist() == [True, True, True, False, True, True, True, True]


@pytest.mark.parametrize("name", IDS)
def test_the_problem_of_an_episode_can_be_chosen(name: str, problems: list[Problem]) -> None:
    env = gym.make(name, problems=problems)
    for index, problem in enumerate(problems):
        for options in ({"problem": index}, {"graph": problem.graph.name}, {"graph": problem.graph}):
            observation, info = env.reset(options=options)
            assert observation["problem"].tolist() == [index]
            assert info["problem"] == problem.name
    seen = {int(env.reset(seed=seed)[0]["problem"][0]) for seed in range(20)}
    assert seen == {0, 1, 2}


def test_a_graph_observation_takes_graphs_of_any_size(problems: list[Problem]) -> None:
    env = PlacetoEnv(problems, obs="graph")
    new = random_graph(40, 5)
    observation, _ = env.reset(options={"graph": new})
    assert env.observation_space.contains(observation)
    assert observation.nodes.shape == (40, 2 * 3 + 4)
    with pytest.raises(InputError, match="room for 14"):
        PlacetoEnv(problems, obs="dict").reset(options={"graph": new})
    with pytest.raises(InputError, match="has no id here"):
        PlacetoEnv(problems, obs="ids").reset(options={"graph": new})
    with pytest.raises(InputError, match="larger max_units"):
        GdpEnv(problems, obs="graph").reset(options={"graph": new})


def test_features_show_the_placement_and_the_current_unit() -> None:
    env = PlacetoEnv(graph=toy_graph([1, 2], [(0, 1)], output_bytes=[3, 5]), cluster=toy_cluster(2), obs="graph")
    env.reset(seed=0)
    observation, *_ = env.step(1)
    second = int(env.placement[1])
    assert observation.nodes.tolist() == [
        [0.5, 0.5, 1, 0, 0, 1, 1, 0],  # seconds on each device, bytes sent, weights, device one-hot, visited, current
        [1, 1, 0, 0, int(second == 0), int(second == 1), 0, 1],
    ]
    assert observation.edge_links.tolist() == [[0, 1]]


def a_pair(**options: Any) -> PlacetoEnv:
    """Two ops of 1 and 2 s, the first sends 3 bytes to the second; two devices, a byte a second between them."""
    return PlacetoEnv(graph=toy_graph([1, 2], [(0, 1)], output_bytes=[3, 5]), cluster=toy_cluster(2), **options)


def test_published_features_are_time_bytes_device_visited_and_current() -> None:
    env = a_pair(obs="graph", features="published")
    env.reset(seed=0, options={"placement": [0, 1]})
    observation, *_ = env.step(1)
    assert observation.nodes.tolist() == [[0.5, 1, 0, 1, 1, 0], [1, 0, 0, 1, 0, 1]]


def test_features_free_of_devices_show_a_copy_of_the_graph_for_each_of_them() -> None:
    env = a_pair(obs="graph", features="device_free")
    observation, _ = env.reset(seed=0, options={"placement": [0, 1]})
    assert observation.nodes.tolist() == [  # seconds there, bytes sent, weights, is it there, visited, current
        [0.5, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 0],
        [0.5, 1, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0],
    ]  # fmt: skip
    assert observation.edge_links.tolist() == [[0, 1], [2, 3]]
    three = PlacetoEnv(random_problem(6, devices=3), obs="graph", features="device_free")
    assert three.observation_space == env.observation_space, "the same space for any number of devices"
    with pytest.raises(InputError, match="unknown features 'publishd'; did you mean 'published'"):
        a_pair(features="publishd")


def random_problem(size: int, devices: int) -> Problem:
    return Problem(random_graph(size, size), toy_cluster(devices))


def test_padded_features_and_their_mask_hold_those_of_the_graph() -> None:
    small, large = random_problem(4, 2), random_problem(7, 2)
    for features, copies in (("by_device", 1), ("published", 1), ("device_free", 2)):
        padded, graph = (PlacetoEnv([small, large], obs=obs, features=features) for obs in ("dict", "graph"))
        (seen, _), (exact, _) = (env.reset(seed=0, options={"problem": 0}) for env in (padded, graph))
        rows = seen["units"].reshape(copies, 7, -1)
        assert seen["exists"].tolist() == [1, 1, 1, 1, 0, 0, 0]
        assert rows[:, :4].reshape(copies * 4, -1).tolist() == exact.nodes.tolist()
        assert not rows[:, 4:].any()


def test_rewards_of_a_pair_worked_out_by_hand() -> None:
    # together they take 3 s; apart 1 s, then 3 s for 3 bytes at a byte a second, then 2 s
    env = a_pair(start="single")
    _, info = env.reset(seed=0, options={"placement": [0, 1]})
    assert info["step_seconds"] == 6
    assert env.step(0)[1] == 0
    assert env.step(0)[1] == 3
    terminal = a_pair(reward="terminal")
    terminal.reset(seed=0)
    assert [terminal.step(device)[1] for device in (1, 0)] == [0, -6]


def test_memory_above_the_threshold_is_paid_for_and_clipped() -> None:
    pair = toy_graph([1, 1], [], weights=[2 * GIB, 2 * GIB], weight_uses=[(0, 0), (1, 1)], output_bytes=[0, 0])
    problem = Problem(pair, toy_cluster(2, memory=8.0 * GIB))
    per_weight = problem.bytes_per_weight_byte * 2  # GiB that each op holds
    options: dict[str, Any] = {"start": "zero", "memory_gib": per_weight, "reward": "terminal"}
    cases: list[tuple[dict[str, Any], float, float]] = [
        ({"longest_seconds": 1e3}, -1.0, -(2 + 2 * per_weight)),
        ({"longest_seconds": 1e3, "penalty_per_gb": 0.5}, -1.0, -(2 + 0.5 * per_weight)),
        ({"longest_seconds": 2.5}, -1.0, -2.5),
    ]
    for knobs, apart, together in cases:
        env = PlacetoEnv(problem, **options, **knobs)
        env.reset(seed=0)
        assert [env.step(device)[1] for device in (0, 1)][1] == apart
        env.reset(seed=0)
        assert [env.step(device)[1] for device in (0, 0)][1] == together


@given(seed=st.integers(0, 1000), size=st.integers(1, 12), memory=st.sampled_from([3.0, 20.0, 1e4]))
@settings(max_examples=examples(20, 8), deadline=None)
def test_improvements_and_the_terminal_reward_tell_the_same(seed: int, size: int, memory: float) -> None:
    problem = Problem(random_graph(size, seed), toy_cluster(3, memory=memory))
    knobs: dict[str, Any] = {"penalty_per_gb": 1e9, "longest_seconds": 1e6}
    stepwise, terminal = (PlacetoEnv(problem, reward=reward, **knobs) for reward in ("improvement", "terminal"))
    devices = np.random.default_rng(seed).integers(0, 3, size)
    totals = []
    for env in (stepwise, terminal):
        _, info = env.reset(seed=seed)
        start = Outcome(info["step_seconds"], info["peak_bytes"], info["fits"])
        first = penalised_seconds(start, Penalty(memory, 1e9, 1e6))
        totals.append(sum(env.step(int(device))[1] for device in devices))
    assert totals[0] == pytest.approx(first + totals[1])


def test_an_episode_starts_where_it_is_set() -> None:
    problem = random_problem(9, devices=3)
    fast = Device("fast", "gpu", 9.0, 9.0, 100.0)
    even = problem.cluster
    cluster = Cluster("uneven", (*even.devices[:2], fast), even.latency, even.bandwidth, even.channel)
    uneven = Problem(problem.graph, cluster)
    for start, device in (("single", 2), ("zero", 0)):
        env = PlacetoEnv(uneven, start=start)
        env.reset(seed=0)
        assert env.placement.tolist() == [device] * 9
    env = PlacetoEnv(problem, start="zero", visits="given")
    assert env.reset(seed=0)[0]["current"] == 0
    observation, _ = env.reset(options={"placement": [1] * 9, "visits": range(8, -1, -1)})
    assert env.placement.tolist() == [1] * 9
    visits = [int(observation["current"][0])] + [int(env.step(0)[0]["current"][0]) for _ in range(8)]
    assert visits == [8, 7, 6, 5, 4, 3, 2, 1, 0]
    for wrong in ({"placement": [0] * 8}, {"placement": [3] * 9}, {"placement": [0.5] * 9}, {"visits": [0] * 9}):
        with pytest.raises(InputError, match=r"option '(placement|visits)': expected"):
            env.reset(options=wrong)


def test_an_episode_may_start_from_the_best_placement_seen() -> None:
    env = PlacetoEnv(random_problem(6, devices=2), start="best")
    _, info = env.reset(seed=4)
    seen = [(info["step_seconds"], env.placement.tolist())]
    for device in (0, 1, 1, 0, 0, 1):
        *_, info = env.step(device)
        seen.append((info["step_seconds"], env.placement.tolist()))
    least = min(seconds for seconds, _ in seen)
    env.reset()
    assert env.placement.tolist() == next(placement for seconds, placement in seen if seconds == least)
    env.reset(seed=4)
    assert env.placement.tolist() == seen[0][1], "a seed begins afresh"


@pytest.mark.parametrize("kind", [PlacetoEnv, GdpEnv])
def test_a_placement_is_rendered(kind: type[PlacetoEnv | GdpEnv], four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    text, pixels, nothing = kind(problem, render_mode="ansi"), kind(problem, render_mode="rgb_array"), kind(problem)
    for env in (text, pixels, nothing):
        env.reset(seed=0)
    assert text.render().startswith("gpu:0")
    assert pixels.render().dtype == np.uint8
    assert pixels.render().shape[2] == 3
    assert nothing.render() is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "either problems=, or graph= and cluster="),
        ({"problems": []}, "at least one problem"),
        ({"graph": random_graph(3, 0)}, "either problems=, or graph= and cluster="),
        ({"problems": heavy(), "obs": "id"}, "unknown observation 'id'; did you mean 'ids'"),
        ({"problems": heavy(), "reward": "speed"}, "unknown reward 'speed'"),
        ({"problems": heavy(), "max_units": 2}, "the largest graph has 3 units"),
        ({"problems": [heavy(), Problem(random_graph(3, 0), toy_cluster(3))]}, r"equally many devices, got \[2, 3\]"),
    ],
)
@pytest.mark.parametrize("kind", [PlacetoEnv, GdpEnv])
def test_wrong_arguments_are_explained(kind: Any, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kind(**arguments)


def test_wrong_actions_and_options_are_explained(problems: list[Problem]) -> None:
    with pytest.raises(InputError, match="unknown start 'singel'; did you mean 'single'"):
        PlacetoEnv(problems, start="singel")
    env, one_shot = PlacetoEnv(problems), GdpEnv(problems)
    env.reset(seed=0)
    one_shot.reset(seed=0)
    with pytest.raises(InputError, match="a device from 0 to 2"):
        env.step(3)
    with pytest.raises(InputError, match="14 devices from 0 to 2"):
        one_shot.step(np.zeros(5, np.int64))
    with pytest.raises(InputError, match="there is no problem 3"):
        env.reset(options={"problem": 3})
    with pytest.raises(InputError, match="unknown reset option 'prblem'"):
        env.reset(options={"prblem": 3})


def test_importing_envs_imports_neither_torch_nor_numba() -> None:
    code = "import sys, envs; sys.exit('torch' in sys.modules or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    "chosen",
    [
        *({"reward": reward} for reward in by_name.built_in("envs.rewards")),
        *({"obs": shown} for shown in ("ids", "dict", "graph")),
        *({"features": shown} for shown in FEATURES),
        {"reward": "mine.py:build:worth=2"},
    ],
)
def test_an_environment_goes_to_another_process_and_is_the_same(
    chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reward = "lambda before, after, last, penalty: worth * after.step_seconds"
    Path("mine.py").write_text(f"def build(*, worth: float = 1.0):\n    return {reward}\n")
    env = gym.make("envs:Placeto-v0", graph=random_graph(6, 1), cluster=toy_cluster(2), **chosen)
    env.reset(seed=0)
    again = pickle.loads(pickle.dumps(env))
    again.reset(seed=0)
    assert [again.step(1)[1] for _ in range(6)] == [env.step(1)[1] for _ in range(6)]
