"""The verb that trains a recipe many times with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.arguments import path_or_none
from evaluation.commands.switches import CACHE, switched
from evaluation.commands.verb_signatures import checked

# Imported late, in the verb, as those of run_verbs.
if TYPE_CHECKING:
    from evaluation.commands.arguments import Changes, PathLike
    from evaluation.tables.sweep_table import SweepReport


@switched(CACHE)
@checked
def sweep(
    recipe: str,
    *,
    over: Changes,
    trials: int = 20,
    out: PathLike | None = None,
    seed: int = 0,
    set: Changes = (),
) -> SweepReport:
    """Train a recipe many times with other settings, which Optuna chooses by how good earlier runs were.

    A run is judged by its validation, the best of it, or, if that chooses no weights, by its last updates on the
    training problems. Ctrl-C stops and saves; the same command resumes, and may ask for more trials.

    Args:
        recipe: a recipe by name, or a TOML file.
        over: a key of the recipe with the values to try: `ppo.learning_rate=1e-4..1e-2:log`, whole numbers as in
            `ppo.samples=8..32`, or words as in `ppo.reward=log|sqrt`; may be given several times.
        trials: how many runs to train in all.
        out: the folder of the sweep, with a run folder for each trial; without it, `runs/RECIPE-sweep`.
        seed: of everything random.
        set: another value for a key of the recipe, as `train` takes it.

    """
    from training.recipe import load_recipe

    load_recipe(recipe, set)  # refused here, and not after seconds of importing what trains it
    from evaluation.tables.sweep_table import SweepReport
    from training.runs.sweep import Over
    from training.runs.sweep import sweep as run

    folder = path_or_none(out) or Path("runs") / f"{Path(recipe).stem}-sweep"
    wanted = [Over.parse(each) for each in over]
    return SweepReport(run(recipe, wanted, trials=trials, out=folder, seed=seed, changes=list(set)))
