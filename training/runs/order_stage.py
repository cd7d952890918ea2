"""The last stage of a training, if its recipe has one: a policy that has learned to place learns to order.

Its other weights stay as they are, those of the best validation if there is one, and it orders placements of its own.
What an order is worth shows among samples of one placement; among samples of many, whose step times differ by more,
it is lost.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH
from placers.contract.abilities import Decisions, Orders
from placers.learned.policy import Policy, SavedPolicy
from training.learning.ppo import PpoTrainer
from training.learning.trainer import Trainer
from training.problems.random.renewed import RenewedProblems
from training.recipe import Recipe
from training.runs.selection import Weights


def learn(what: Decisions, policy: SavedPolicy, recipe: Recipe) -> Policy[Any, Any, Any]:
    """Have a policy learn devices alone, or the order alone. Raises InputError if it chooses no order."""
    if not isinstance(policy, Orders) or not isinstance(policy, Policy):
        raise InputError(f"placer {recipe.placer!r} chooses no order; set order.updates to 0")
    if recipe.problems.order != LONGEST_PATH.name:
        raise InputError(
            f"an order departs from {LONGEST_PATH.name!r}; set problems.order to that, or order.updates to 0"
        )
    policy.learn(what)
    return policy


def order_trainer(
    recipe: Recipe, placing: Trainer, weights: Weights, problems: Sequence[Problem], renewed: RenewedProblems | None
) -> PpoTrainer:  # type: ignore[type-arg]  # of whichever view
    """What trains the order head of a policy with these weights, by PPO on the problems that it learned to place."""
    policy = learn("order", placing.policy, recipe)
    policy.load_state_dict(weights)
    ppo = replace(
        recipe.ppo, updates=recipe.order.updates, baseline="samples", entropy=0.0, final_entropy=0.0, repairs=0.0,
        curriculum=0.0,
    )  # fmt: skip
    trainer = PpoTrainer(policy, problems, ppo, placing.seed, None, renewed, placing.ranks)
    trainer.engine = placing.engine
    return trainer
