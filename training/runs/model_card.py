"""A policy's model card (Mitchell et al. 2019): what it is for, what it learned from and how, what it is not for."""

import hashlib
from pathlib import Path

from jinja2 import StrictUndefined, Template

from graphs.foundation import by_name
from placers.learned.lookup import trainer_of
from placers.learned.policy_file import WEIGHTS
from placers.learned.policy_meta import Meta
from training.recipe import Recipe

TEMPLATE = Path(__file__).resolve().parent / "card.md.j2"
METHODS = {"ppo": "PPO", "reinforce": "REINFORCE", "whole_plans": "list-wise ranking"}  # of placelab's trainers


def model_card(meta: Meta, recipe: Recipe, folder: Path) -> str:
    """Markdown; everything in it follows from the run."""
    problems = recipe.problems
    where = "" if any(by_name.own(each) for each in problems.families) else " (`graphs/families/`)"
    families = f"the graphs under `TRAIN` of {', '.join(problems.families)}{where}"
    mixed = f"up to {problems.mixed} further graphs of each of these families, whose knobs are theirs in other mixtures"
    suites = f"the suites {', '.join(problems.suites)} (`graphs/files/suites.py`)"
    given, tests = (", ".join(f"`{each}`" for each in graphs) for graphs in (problems.graphs, problems.test_graphs))
    shares = {
        "of the copies have unequal devices": problems.unequal if problems.randomised else 0,
        "of the problems are forward passes alone": problems.forward,
        "take times that no roofline gives": problems.measured,
    }
    *most, last = map(str, problems.groups)
    content: dict[str, dict[str, object]] = {
        "graphs": {
            families: problems.families,
            mixed: problems.families and problems.mixed,
            given: problems.graphs,
            suites: problems.suites,
        },
        "clusters": {
            ", ".join(problems.clusters): problems.families or problems.graphs,
            "the suites' own clusters": problems.suites,
        },
        "tests": {"the graphs under `TEST` of the same families": problems.families, tests: problems.test_graphs},
        "varied": {f"{share:.0%} {what}": share for what, share in shares.items()},
    }
    template = Template(
        TEMPLATE.read_text(), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    weights = folder / WEIGHTS
    trainer = trainer_of(meta.spec)
    card: str = template.render(
        sha256=hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else "",
        meta=meta,
        problems=problems,
        world=problems.world,
        folder=folder,
        imitated=recipe.imitation.updates,
        again=recipe.imitation.again,
        trainer=METHODS.get(trainer, f"`{trainer}`"),
        plans_wholly=trainer == "whole_plans",
        groups=f"{', '.join(most)} or {last}" if most else last,
        **{name: [text for text, is_there in parts.items() if is_there] for name, parts in content.items()},
    )
    return card
