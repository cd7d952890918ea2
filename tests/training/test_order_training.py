"""What an order head learns by itself, on given placements: it orders graphs that it never saw better than the rule.

`pytest -m slow -s tests/training/test_order_training.py` prints how much better, next to a search of orders.
"""

import numpy as np
import pytest
import torch

from envs.orders import priorities_of
from envs.simulation.simulator import Simulator
from evaluation.records.statistics import geometric_mean
from graphs.files.load import load_cluster, load_graph
from graphs.foundation import by_name
from graphs.op_graph import Ints
from graphs.op_graph.parts import Parts
from graphs.problem import Problem
from placers.learned.sequential.action import SequentialAction, SequentialBatch
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.settings import Ppo
from placers.search.order_moves import LARGEST, SMALLEST
from training.learning.ppo import PpoTrainer

SEEN = (
    "inception:blocks=6", "rnnlm:layers=2,steps=10", "gnmt:layers=4,steps=8", "layered:seed=3,depth=16,breadth=4",
    "amoebanet:layers=3", "transformer:layers=4", "nmt:steps=6", "ptb", "transformer_xl:layers=4", "cifar10",
)  # fmt: skip
UNSEEN = (
    "inception_v3", "rnnlm:layers=4,steps=8", "layered:seed=8,depth=20,breadth=5", "nasnet", "wavenet", "bert:layers=4",
    "gnmt:layers=2,steps=12", "xlnet:layers=3",
)  # fmt: skip
PLACERS = {"metis": 1, "heft": 1, "default": 1, "annealing:order=no": 2000}  # and their budgets
UPDATES, SEARCHED = 200, 2000


class WithGivenPlacements(SequentialPolicy):
    """A policy that places as it was told, and decides the order alone."""

    given: dict[int, Ints]  # by the identity of what the head sees of a problem

    def _placed(self, batch: SequentialBatch, *_: object) -> SequentialAction:
        """The given placements."""
        devices = torch.zeros(len(batch.layouts), 1, batch.encoded.unit_mask.shape[1], dtype=torch.int64)
        for row, precedence in zip(devices, batch.parts.precedences, strict=True):
            placement = self.given[id(precedence)]
            row[:, : len(placement)] = torch.from_numpy(placement)
        return self.follow(batch, devices, torch.full_like(devices, -1))


def placed(specs: tuple[str, ...], placer: str) -> list[tuple[Problem, Ints]]:
    cluster = load_cluster("p100:devices=4")
    problems = [Problem(load_graph(spec, groups=64), cluster) for spec in specs]
    build = by_name.build("placers", placer)
    return [(each, build.place(each, budget=PLACERS[placer]).plan.per_unit(each)) for each in problems]


def searched(problem: Problem, placement: Ints, simulations: int) -> float:
    """Step time over that of the rule, after changes like annealing's of the order alone, kept if no worse."""
    simulator, rng, parts = Simulator(problem), np.random.default_rng(0), Parts.of(problem.graph)
    now = priorities_of(problem)
    first = best = simulator.run(placement).step_seconds
    largest = LARGEST * np.ptp(now)
    for _ in range(simulations):
        part, kind = rng.integers(len(parts)), rng.integers(3)
        ops = parts.ops[parts.offsets[part] : parts.offsets[part + 1]]
        if kind == 0:
            ops = np.flatnonzero(problem.graph.units == parts.unit[part])
        elif kind == 1:
            ops = rng.choice(ops, 1)
        changed = now.copy()
        changed[ops] += largest * SMALLEST ** rng.random() * rng.choice((-1, 1))
        outcome = simulator.run_ordered(placement[None], changed[None]).of(0)
        if outcome.fits and outcome.step_seconds <= best:
            now, best = changed, outcome.step_seconds
    return best / first


def ratio(policy: SequentialPolicy, problem: Problem, placement: Ints) -> float:
    """Step time under the policy's order over that under the rule."""
    orders = policy.likely_orders(problem, placement[None])
    assert orders is not None
    simulator = Simulator(problem)
    ours = simulator.run_ordered(placement[None], orders).step_seconds[0]
    return float(ours / simulator.run(placement).step_seconds)


@pytest.mark.slow
def test_the_orders_of_unseen_graphs_are_better_than_the_rules() -> None:
    policy = WithGivenPlacements.new("sequential:orders=true", 0)
    policy.learn("order")
    learned_from = [pair for placer in PLACERS for pair in placed(SEEN, placer)]
    ppo = Ppo(updates=UPDATES, samples=16, entropy=0.0, final_entropy=0.0)
    trainer = PpoTrainer(policy, [problem for problem, _ in learned_from], ppo, 0)
    policy.given = {
        id(each.view[2]): placement for each, (_, placement) in zip(trainer.problems, learned_from, strict=True)
    }
    for _ in range(UPDATES):
        trainer.update()
    over_rule = {}
    for placer in PLACERS:
        for name, specs in (("seen", SEEN), ("unseen", UNSEEN)):
            pairs = placed(specs, placer)
            ours = np.array([ratio(policy, *pair) for pair in pairs])
            search = np.array([searched(*pair, SEARCHED) for pair in pairs])
            over_rule[placer, name] = float(geometric_mean(ours))
            better = geometric_mean(np.minimum(ours, 1.0))
            print(
                f"{placer}, {name}: head {over_rule[placer, name]:.4f}, better of head and rule {better:.4f}, "
                f"search of {SEARCHED} orders {geometric_mean(search):.4f}; {np.round(ours, 3).tolist()}"
            )
    assert over_rule["metis", "unseen"] < 0.99
    assert float(geometric_mean(np.array([over_rule[placer, "unseen"] for placer in PLACERS]))) < 1.0
