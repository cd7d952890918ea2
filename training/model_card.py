"""A policy's model card (Mitchell et al. 2019): what it is for, what it learned from and how, what it is not for."""

from __future__ import annotations

from pathlib import Path

from placers.learned.load import trainer_of
from placers.learned.policy_file import Meta
from training.recipe import ProblemSet, Recipe


def model_card(meta: Meta, recipe: Recipe, folder: Path) -> str:
    """Markdown; everything in it follows from the run."""
    learned = recipe.problems
    copies = f", each also with {learned.randomised} copies of other speed and memory" if learned.randomised else ""
    kept = f"; {learned.variants} of these variants are kept of each graph, at random" if learned.variants else ""
    return "\n".join(
        (
            f"# A {meta.placer} policy",
            "",
            "It says on which device each op, or group of ops, of a computation graph is to run, so that a training",
            "step is short and fits in memory. It has seen simulated steps only, no hardware.",
            "",
            f"    placelab place GRAPH --cluster CLUSTER --placer {meta.placer}:checkpoint={folder}",
            "",
            f"- Network: `{meta.network}`, seed {meta.seed}. {_how(meta, recipe)}",
            f"- Trained on: {_trained_on(learned)}, tied into",
            f"  {_listed(learned.groups)} groups, on {_clusters(learned)}{copies}{kept}.",
            *_variety(learned),
            *_evaluated_on(learned),
            "- Step times are those of placelab's simulator under the roofline cost model; memory counts",
            f"  weights, gradients, the state of the optimizer ({learned.optimizer}) and what the backward pass needs.",
            "- Not for: pipelines of several micro-batches, replicas of an op, or clusters far from those above",
            "  (dozens of devices, links a hundred times slower). Simulate its plan next to those of cheap placers.",
            "- Files: weights in `policy.safetensors`, what they expect in `meta.json`, the recipe in `config.toml`,",
            "  the training curve in `metrics.jsonl`.",
            "",
        )
    )


def _trained_on(learned: ProblemSet) -> str:
    families = f"the graphs under `TRAIN` of {', '.join(learned.families)} (`graphs/families/`)"
    parts = [families] if learned.families else []
    parts += [", ".join(f"`{graph}`" for graph in learned.graphs)] if learned.graphs else []
    parts += [f"the suites {', '.join(learned.suites)} (`graphs/suites.py`)"] if learned.suites else []
    return "; ".join(parts)


def _clusters(learned: ProblemSet) -> str:
    named = ", ".join(learned.clusters) if learned.families or learned.graphs else ""
    return " and ".join(filter(None, (named, "the suites' own clusters" if learned.suites else "")))


def _evaluated_on(learned: ProblemSet) -> list[str]:
    """What training did not see, if the recipe names any."""
    tests = ["the graphs under `TEST` of the same families"] if learned.families else []
    tests += [", ".join(f"`{graph}`" for graph in learned.test_graphs)] if learned.test_graphs else []
    if not tests:
        return []
    return [
        f"- To be evaluated on: {' and '.join(tests)}, on {', '.join(learned.test_clusters)};",
        "  training saw none of them. Families that are not listed above were not seen at all.",
    ]


def _variety(learned: ProblemSet) -> list[str]:
    """A line about what else varies, if anything does."""
    shares = (
        (learned.unequal if learned.randomised else 0, "of the copies have unequal devices"),
        (learned.forward, "of the problems are forward passes alone"),
        (learned.measured, "take times that no roofline gives"),
    )
    varied = [f"{share:.0%} {what}" for share, what in shares if share]
    return [f"  Of all this, at random, {'; '.join(varied)}."] if varied else []


def _how(meta: Meta, recipe: Recipe) -> str:
    count = recipe.imitation.updates
    before = f"First {count:,} updates of imitation of what search found, then " if count else ""
    way = trainer_of(meta.placer).upper()
    return f"{before}{meta.updates:,} updates by {way}; {meta.simulations:,} simulations in all."


def _listed(numbers: tuple[int, ...]) -> str:
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last}" if most else last
