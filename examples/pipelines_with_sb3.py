"""PPO of Stable-Baselines3 learns to plan: replicas and pipelines for three models, and one that it never saw.

    python examples/pipelines_with_sb3.py
    python examples/pipelines_with_sb3.py --steps 100000 --seed 1 --logs runs/sb3

An episode makes one plan, decision by decision: micro-batches, the order of passes, then each stage's devices and
end. What is impossible is masked (`training.sb3.MaskedPolicy`). The reward, at the end, is the logarithm of how many
times as fast as one device the plan is. Observations say all that there is to know of a problem in numbers of one
size, so that the same weights plan for another model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import placelab
from placelab import Problem, load_cluster, load_graph
from training.sb3 import MaskedPolicy

CLUSTER = "p100x4"
TRAINED_ON = ("gnmt:layers=4,steps=8,batch=128", "vgg:layers=16,batch=64", "transformer:layers=8,batch=64")
UNSEEN = "vit:layers=8,batch=64"
RIVALS = ("single_device", "metis", "heft", "data_parallel", "dapple")


def ppo(problems: Sequence[Problem], *, seed: int = 0, logs: str | None = None) -> PPO:
    """A policy that has learned nothing yet, with eight episodes side by side."""
    env = make_vec_env(lambda: placelab.make_env("PipelinePlan-v0", problems), n_envs=8, seed=seed)
    return PPO(
        MaskedPolicy, env, n_steps=128, batch_size=256, n_epochs=4, learning_rate=1e-3, gamma=1.0, ent_coef=0.01,
        seed=seed, tensorboard_log=logs, device="cpu",
    )  # fmt: skip


def planned_by(model: PPO, problem: Problem) -> float:
    """Seconds of the step by the plan of one episode in which the policy takes what it likes best."""
    env = placelab.make_env("PipelinePlan-v0", problem)
    observation, _ = env.reset(seed=0)
    ended = False
    while not ended:
        action, _ = model.predict(observation, deterministic=True)
        observation, _, ended, _, _ = env.step(int(action))
    return placelab.simulate_plan(problem, env.get_wrapper_attr("plan")).step_seconds  # op by op


def step_seconds(graph: str, placer: str) -> float:
    """Of the plan that a placer makes, without search."""
    placed = placelab.place(
        graph, cluster=CLUSTER, groups=None, placer=placer, budget=1, runtime="ideal", cost_model="roofline"
    )  # as a `Problem` is unless it says otherwise
    return placed.timeline.step_seconds


def main() -> None:
    """Train, compare on all four models, and say what is faster."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=30_000, help="of the environment, over all episodes")
    parser.add_argument("--seed", type=int, default=0, help="of PPO")
    parser.add_argument("--logs", help="a folder for TensorBoard")
    given = parser.parse_args()
    cluster = load_cluster(CLUSTER)
    problems = [Problem(load_graph(graph), cluster) for graph in (*TRAINED_ON, UNSEEN)]
    model = ppo(problems[:-1], seed=given.seed, logs=given.logs)
    before = [planned_by(model, problem) for problem in problems]
    model.learn(given.steps)
    print("milliseconds of a step" + " " * 11 + "".join(f"{name:>14}" for name in ("before", "after", *RIVALS)))
    behind = []
    for graph, problem, untrained in zip((*TRAINED_ON, UNSEEN), problems, before, strict=True):
        after, others = planned_by(model, problem), {name: step_seconds(graph, name) for name in RIVALS}
        print(f"{graph:<33}" + "".join(f"{1e3 * each:>14.2f}" for each in (untrained, after, *others.values())))
        behind += [f"{name} on {graph}" for name, seconds in others.items() if seconds < 0.99 * after]
    print(f"It never saw {UNSEEN}. Faster by more than 1%: {', '.join(behind) or 'nothing'}.")


if __name__ == "__main__":
    main()
