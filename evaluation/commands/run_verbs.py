"""The verbs about many problems, about runs and about what is kept.

They import what they run when they are called, so that `placelab --help` need not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from evaluation.commands.arguments import of_problem, path_or_none, workers_of
from evaluation.commands.switches import CACHE, CODE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.code_in_files import named_by_user
from graphs.foundation.errors import InputError
from graphs.foundation.extras import check_extra
from graphs.foundation.files import check_writable

# Imported late, in each verb: what a verb needs takes up to seconds to import, and --help must not wait for it.
if TYPE_CHECKING:
    from typing import Unpack

    from evaluation.commands.arguments import (
        CacheAction,
        Changes,
        ClusterLike,
        CompareOptions,
        Folders,
        GraphLike,
        PathLike,
        PlacerLike,
        TimingOptions,
        TrainOptions,
    )
    from evaluation.commands.listing import Listing
    from evaluation.comparing.comparison import Comparison
    from evaluation.tables.cache_usage import CacheUsage
    from placers.contract.placer import Placer
    from placers.contract.time_limit import Seconds
    from training.runs.seeds import Trained

BUDGET = 16  # simulations of each placer on each problem, where nothing else is said


@checked
def list_names(what: str = "all") -> Listing:
    """List what exists by name: model families, clusters, placers, networks, cost models, training recipes.

    Args:
        what: the kind of thing to list, such as `families`, or `all`; or a name, such as `rnnlm`, with its knobs as
            they are by default.

    """
    from evaluation.commands.listing import KINDS, Listing

    if what in KINDS:
        return Listing.of([what])
    return Listing.of(list(KINDS)) if what == "all" else Listing.of_name(what)


@checked
def cache(action: CacheAction = "show") -> CacheUsage:
    """Show what the cache of captured graphs holds and where it is, or clear it.

    The environment variable PLACELAB_CACHE names another folder to keep it in.

    Args:
        action: `show`, or `clear` to remove all that it holds.

    """
    from evaluation.tables.cache_usage import CacheUsage
    from graphs.capture.cache import clear

    if action == "clear":
        clear()
    return CacheUsage.now()


@switched(CACHE, CODE)
@checked
def compare(
    graphs: Sequence[GraphLike] = (),
    *,
    suite: str = "",
    clusters: Sequence[ClusterLike] = (),
    placers: Sequence[PlacerLike] = (),
    budget: int | None = None,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Compare placers on every graph and cluster, at the same number of simulations or seconds of the processor.

    Args:
        graphs: graph files, family specs such as `rnnlm:layers=4`, or `file.py:callable`.
        suite: instead of graphs and clusters, the problems of suites that `placelab list suites` lists: `gdp12`.
        clusters: cluster files, or presets such as `p100:devices=4`; without any, as `place` without one.
        placers: placers' specs, such as `default`, or run folders of trained ones, with commas between them and
            `+finetuned` after them to fine-tune; without any, all that need no training.
        budget: how many placements each placer may simulate on each problem; 16 unless `seconds` are given.
        seconds: of the processor, after which searches stop, and policies draw no more samples, on each problem, in
            place of the budget; placers that cannot stop take as long as they take, which the table shows.
        groups: tie the ops into this many groups, as `place` takes it.
        optimizer: whose state occupies memory, as `place` takes it.
        precision: that of training, as `place` takes it.
        micro_batches: equal parts of the batch, for placers that plan such and do not say how many.
        batch: samples of a step, as `place` takes it.
        training: compare on training steps; without it, on forward passes.
        cost_model: what ops cost, as `place` takes it.
        runtime: how plans are run, as `place` takes it.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        reserve: memory that tensors cannot have, as `place` takes it.
        objective: what to minimise, as `place` takes it; in JSON the `max-load` is in milliseconds, too.
        seeds: how many seeds to run each placer with.
        workers: how many processes to share the work among; several need the extra `cluster`.
        cluster_address: the dask scheduler whose workers do the work instead, such as `tcp://host:8786`.
        robust: rank plans by their median step time when ops and transfers take a little longer or shorter at random.
        journal: a file that keeps each result and its plan as it comes; the same command resumes from there.
        plans: a folder for the plans, a plan file each.

    """
    from evaluation.commands.load_placer import chosen_placers, classical_placers, divides_batch
    from evaluation.commands.problems import asked_problems
    from evaluation.commands.unlike_training import folders_among, unlike_training
    from evaluation.comparing.compare import check_settings
    from evaluation.comparing.compare import compare as run

    limit = _limit(budget, options["seconds"])
    _check_suite(suite, graphs, clusters)
    seeds, workers = range(options["seeds"]), workers_of(options)
    journal, plans = path_or_none(options["journal"]), path_or_none(options["plans"])
    check_settings(seeds=seeds, workers=workers, journal=journal, plans=plans)
    asked = asked_problems(graphs, clusters, suite=suite, objective=options["objective"], **of_problem(options))
    chosen = chosen_placers(placers, classical_placers(), micro_batches=options["micro_batches"])
    problems = asked(divides_batch(chosen))
    said = [each for folder in folders_among(placers) for each in unlike_training(folder, problems, str(folder))]
    found = run(
        chosen, problems, budget=limit, seeds=seeds, workers=workers,
        robust=options["robust"], journal=journal, plans=plans,
    )  # fmt: skip
    return replace(found, remarks=(*found.remarks, *said))


def _check_suite(suite: str, graphs: Sequence[GraphLike], clusters: Sequence[ClusterLike]) -> None:
    """Raise InputError unless there is either a suite, which names clusters, or graphs."""
    if bool(suite) == bool(graphs):
        raise InputError("compare needs graphs, or a `suite`, and not both")
    if suite and clusters:
        raise InputError("a suite names its clusters; leave out `clusters`")


def _limit(budget: int | None, seconds: float | None) -> int | Seconds:
    """What placers may use: simulations, or seconds if these are given. Raises InputError for both."""
    from placers.contract.time_limit import Seconds

    if seconds is None:
        return BUDGET if budget is None else budget
    if budget is not None:
        raise InputError(f"give a budget ({budget}) or seconds ({seconds:g}), and not both; or a placer's own seconds")
    return Seconds(seconds)


@switched(CACHE)
@checked
def train(
    recipe: str = "gdp",
    *,
    out: PathLike | None = None,
    seed: int = 0,
    seeds: int = 1,
    set: Changes = (),
    logger: Sequence[str] = (),
    resume: bool = False,
    **options: Unpack[TrainOptions],
) -> Placer | Trained:
    """Train a placement policy on graphs of families, files or suites, into a run folder.

    Ctrl-C stops after the current update and saves; `--resume` resumes from there.

    Args:
        recipe: a recipe by name, or a TOML file.
        out: the run folder; without it, `runs/RECIPE-seedN`. Of several seeds, the folders are `OUT-seedN`.
        seed: of everything random.
        seeds: how many seeds to train, from `seed` on, one after the other, each in a folder of its own.
        set: another value for a key of the recipe, `--set ppo.updates=200`; may be given several times.
        logger: what shows the metrics, several with commas: `tensorboard`, `wandb` or `mlflow`, extras of these names;
            without it, `tensorboard` if it is installed. Settings of the last two say where they send metrics;
            `metrics.jsonl` has them in any case.
        resume: resume the run in the folder.
        runtime: how plans are run, as `place` takes it, in place of the recipe's `problems.runtime`.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        precision: that of training, as `place` takes it, in place of the recipe's `problems.precision`.
        workers: how many processes search labels and simulate; several need the extra `cluster`. The run is the same.
        cluster_address: the dask scheduler whose workers do so instead, such as `tcp://host:8786`.
        device: what computes the encoder of a sequential policy: `cpu`, `cuda`, or a card by its number, `cuda:1`.

    """
    from training.loggers import DEFAULT_LOGGERS, check_loggers
    from training.recipe import load_recipe

    check_loggers(logger)

    from evaluation.commands.problems import recipe_changes

    given = [set] if isinstance(set, str) else [*set]
    started = load_recipe(recipe, given)  # refused here, and not after seconds of importing what trains it
    changes = recipe_changes(started.problems, options)
    started = started.changed(changes)
    for spec in started.problems.named:
        named_by_user(spec)
    from training.runs.resources import Resources
    from training.runs.seeds import train_runs

    said = [word for change in (*given, *changes) for word in ("--set", change)]
    return train_runs(
        started, Path(recipe).stem, out=path_or_none(out), seed=seed, seeds=seeds, resume=resume,
        command=["placelab", "train", recipe, *said], loggers=logger or DEFAULT_LOGGERS,
        resources=Resources(workers_of(options), options["device"]),
    )  # fmt: skip


@switched(CACHE, CODE)
@checked
def evaluate(
    policy: PathLike = "default",
    *,
    suite: str = "",
    placers: Sequence[PlacerLike] = (),
    budget: int | None = None,
    seconds: float | None = None,
    seeds: int = 3,
    workers: int = 1,
    cluster_address: str = "",
    journal: PathLike | None = None,
    **options: Unpack[TimingOptions],
) -> Comparison:
    """Compare a trained policy, zero-shot on graphs that it never saw, with every placer that needs no training.

    The evaluation of a run on its own test split is kept in the run folder, as `evaluation.json`.

    Args:
        policy: the run folder that `train` wrote, or `default`: the policy that comes with placelab.
        suite: the problems of a suite, or of several with commas, such as `heldout`, `newfamilies` or `clusters`;
            without it, the test split of the policy's recipe.
        placers: the rivals, as `compare` takes them; without any, all that need no training.
        budget: how many placements each placer may simulate on each problem; 16 unless `seconds` are given.
        seconds: of the processor, in place of the budget, as `compare` takes it.
        seeds: how many seeds to run each placer with.
        workers: how many processes to share the work among; several need the extra `cluster`.
        cluster_address: the dask scheduler whose workers do the work instead, such as `tcp://host:8786`.
        groups: tie the ops into this many groups; without it, as many as the policy's recipe says.
        cost_model: what ops cost, as `place` takes it.
        precision: that of training, as `place` takes it.
        runtime: how plans are run, as `place` takes it; without it, on the policy's own test split, as it was trained,
            which holds for precision and order, too.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        journal: a file that keeps each result as it comes; the same command resumes from there.

    """
    from evaluation.commands.evaluate import evaluate as run

    return run(
        policy, placers, suite, budget=_limit(budget, seconds), seeds=seeds, workers=cluster_address or workers,
        journal=path_or_none(journal), **options,
    )  # fmt: skip


@switched(CACHE, CODE)
@checked
def finetune(
    run: PathLike,
    graph: str,
    *,
    cluster: str = "p100:devices=4",
    simulations: int = 1000,
    optimizer: str = "adam",
    seed: int = 0,
    logger: Sequence[str] = (),
    **options: Unpack[TimingOptions],
) -> Comparison:
    """Fine-tune a trained policy on one problem, and compare it with every placer at the same number of simulations.

    Writes the tuned policy to `finetune/` in the run folder, and its best plan to `best.plan.json`.

    Args:
        run: the run folder that `train` wrote.
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file, or a preset such as `p100:devices=4`.
        simulations: how many placements may be simulated.
        groups: tie the ops into this many groups, each placed as one; without it, as many as the policy's recipe says.
        optimizer: whose state occupies memory, as `place` takes it.
        cost_model: what ops cost, as `place` takes it; the report times the plan by it, too.
        precision: that of training, as `place` takes it.
        runtime: how plans are run, as `place` takes it; without it, as in the policy's training, or as `place` has it
            where that had several.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        seed: of everything random.
        logger: what shows the best step time as it comes, as `train` takes it; `finetune/metrics.jsonl` has it in any
            case.

    """
    from evaluation.commands.evaluate import finetune as finetune_run

    return finetune_run(
        Path(run), graph, cluster, optimizer=optimizer, simulations=simulations, seed=seed, loggers=logger, **options
    )


@switched(CACHE, CODE)
@checked
def report(runs: Folders, *, out: PathLike | None = None) -> Path:
    """Write a run's report, one HTML file with curves, tables, and the best plan drawn; or compare several runs.

    Args:
        runs: the run folder that `train` wrote, or several: in what they differ, how they learned, what their policies
            are worth on the same graphs, and at what each is best.
        out: the file to write, `*.html`; without it `report.html` in the run folder or, of several runs,
            `comparison.html` in the folder that they have in common.

    """
    check_extra("charts", "a report")
    from evaluation.reporting.report import write_report
    from evaluation.reporting.runs_report import write_runs_report

    folders, path = cast("list[Path]", runs), path_or_none(out)
    if not folders:
        raise InputError("report needs a run folder, or several to compare")
    check_writable(path, endings=(".html",), inputs=folders)
    return write_report(folders[0], path) if len(folders) == 1 else write_runs_report(folders, path)
