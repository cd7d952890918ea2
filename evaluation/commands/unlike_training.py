"""In what problems differ from those that a policy was trained on, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envs.costs.costs import MEASURED_SHARES, cost_model_of, timing
from evaluation.commands.arguments import AUTO
from evaluation.comparing.comparison import FINETUNED
from graphs.files.load import load_clusters
from graphs.foundation import by_name
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.errors import located
from graphs.problem import Problem
from graphs.transforms.mixed_precision import AS_IT_IS

if TYPE_CHECKING:
    from evaluation.commands.arguments import TimingOptions
    from placers.contract.placer import Placer
    from training.recipe import ProblemSet


def folders_among(placers: Iterable[str | Path | Placer]) -> list[Path]:
    """The folders of policies, fine-tuned or not, that placers are given as."""
    given = (each for one in placers for each in (by_name.specs(one) if isinstance(one, str) else [one]))
    named = dict.fromkeys(str(each).removesuffix(FINETUNED) for each in given if isinstance(each, str | Path))
    return [Path(each) for each in named if not by_name.exists("placers", each) and Path(each).is_dir()]


def as_trained(folder: Path, options: TimingOptions) -> TimingOptions:
    """The options with the op groups and the runtime of a policy's training where they say none.

    Raises InputError for a damaged recipe, and for one that names code (`named_in_file`).
    """
    from training.runs.run_folder import CONFIG, RunFolder  # imported late: with torch

    if not RunFolder(folder).is_begun:
        return options
    trained, found = RunFolder(folder).recipe.problems, options.copy()
    if options.get("groups", AUTO) == AUTO:
        found["groups"] = trained.test_groups
    if options.get("runtime", AUTO) == AUTO and len(trained.runtimes) == 1:
        with located(folder / CONFIG):
            named_in_file(trained.runtimes[0].order.name)
        found["runtime"] = trained.runtimes[0].name
    return found


def unlike_training(folder: Path, problems: Sequence[Problem], who: str = "The policy") -> list[str]:
    """A sentence, if problems have more op groups than those that the policy in a folder was trained on, or others.

    Raises InputError for a damaged recipe.
    """
    from training.runs.run_folder import RunFolder  # imported late: with torch, which a refusal does not wait for

    if not RunFolder(folder).is_begun:
        return []
    trained = RunFolder(folder).recipe.problems
    most, said = max(each.graph.num_units for each in problems), list[str]()
    if most > max(trained.groups):
        said.append(f"on at most {max(trained.groups)} op groups, and here there are {most} (`--groups`)")
    runtimes = [each.name for each in trained.runtimes]
    said += _other("with the runtime", runtimes, (each.runtime.name for each in problems), "--runtime")
    if not trained.world.problems:  # whose clusters and times are drawn
        said += _of_models(trained, problems)
    return [f"{who} was trained {'; '.join(said)}."] if said else []


def _of_models(trained: ProblemSet, problems: Sequence[Problem]) -> list[str]:
    """In what models and clusters differ; of copies of clusters, whose speeds are drawn, nothing is said."""
    precisions = [_words(each) for each in trained.precisions]
    said = _other("in", precisions, (_words(each.graph.captured_in) for each in problems), "--precision")
    models = [*(cost_model_of(each.graph) for each in problems), *[MEASURED_SHARES] * (trained.calibrated > 0)]
    said += _other("by the cost model", models, (timing(each) for each in problems), "--cost-model")
    if not trained.randomised and not trained.suites:
        clusters = [each.name for each in load_clusters(trained.clusters)]
        said += _other("on", clusters, (each.cluster.name for each in problems), "the cluster")
    return said


def _other(what: str, trained: Iterable[str], here: Iterable[str], flag: str) -> list[str]:
    """In what one thing differs, if it does."""
    known, found = dict.fromkeys(trained), dict.fromkeys(here)
    if found.keys() <= known.keys():
        return []
    named = f"`{flag}`" if flag.startswith("--") else flag
    return [f"{what} {', '.join(known)}, and here it is {', '.join(found)} ({named})"]


def _words(precision: str) -> str:
    return precision if precision not in ("", AS_IT_IS) else "the precision of the models"
