"""PPO of Stable-Baselines3 on Placeto's MDP: it trains on three small graphs and places a fourth.

    python examples/placeto_with_sb3.py
    python examples/placeto_with_sb3.py --steps 100000 --logs runs/sb3

An episode visits every unit of a graph once and moves it to a device; the reward is by how much the step gets shorter
(Addanki et al., NeurIPS 2019). `training/sb3.py` has what reads the graphs: here Placeto's own network.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import placelab
from placelab import Problem, load_cluster, load_graph
from training.sb3 import policy_kwargs

RIVALS = {"single_device": 0, "human_expert": 0, "annealing": 1000}  # simulations; annealing also searches the order
CLUSTER, GROUPS = "p100x2", 16  # two devices; 16 units in each graph, so an episode has 16 steps
TRAINED_ON = ("rnnlm:layers=2,steps=8", "rnnlm:layers=3,steps=8", "rnnlm:layers=4,steps=8")
UNSEEN = "rnnlm:layers=5,steps=8"


def ppo(problems: Sequence[Problem], logs: str | None = None) -> PPO:
    """A policy that has learned nothing yet, with eight episodes side by side."""
    settings: dict[str, Any] = {"problems": problems}
    env = make_vec_env("envs:Placeto-v0", n_envs=8, env_kwargs=settings, seed=0)
    network = policy_kwargs(gymnasium.make("envs:Placeto-v0", **settings), network="placeto")
    return PPO(
        "MultiInputPolicy", env, policy_kwargs=network, n_steps=64, batch_size=128, n_epochs=4, learning_rate=1e-3,
        gamma=1.0, seed=0, tensorboard_log=logs, device="cpu",
    )  # fmt: skip


def placed_by(model: PPO, problem: Problem) -> float:
    """Seconds of the step after one episode in which the policy takes what it likes best."""
    env = gymnasium.make("envs:Placeto-v0", problems=[problem], start="single")
    observation, info = env.reset(seed=0)
    ended = False
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, ended, _, info = env.step(int(action))
    return float(info["step_seconds"])


def step_seconds(graph: str, placer: str, budget: int) -> float:
    """Of the plan that a placer makes."""
    placed = placelab.place(
        graph, cluster=CLUSTER, groups=GROUPS, placer=placer, budget=budget, runtime="ideal", cost_model="roofline"
    )  # as in papers, and as a `Problem` is unless it says otherwise
    return placed.timeline.step_seconds


def main() -> None:
    """Train, and compare on all four graphs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="of the environment, over all episodes")
    parser.add_argument("--logs", help="a folder for TensorBoard")
    given = parser.parse_args()
    cluster = load_cluster(CLUSTER)
    problems = [Problem(load_graph(graph, groups=GROUPS), cluster) for graph in (*TRAINED_ON, UNSEEN)]
    trained = ppo(problems[:-1], given.logs).learn(given.steps)
    print("milliseconds of a step" + "".join(f"{name:>15}" for name in ("the policy", *RIVALS)))
    for graph, problem in zip((*TRAINED_ON, UNSEEN), problems, strict=True):
        model = ppo([problem])  # the same network, which reads another graph
        model.policy.load_state_dict(trained.policy.state_dict())
        found = [placed_by(model, problem), *(step_seconds(graph, *rival) for rival in RIVALS.items())]
        print(f"{graph:<22}" + "".join(f"{seconds * 1e3:>15.2f}" for seconds in found))


if __name__ == "__main__":
    main()
