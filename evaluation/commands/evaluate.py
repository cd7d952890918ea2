"""Evaluate a trained policy: zero-shot on graphs that it never saw, and fine-tuned on one; and its rivals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace as replace_fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from envs.costs.costs import timed
from envs.plans.conditions import Conditions
from evaluation.commands.arguments import AUTO, tied_into
from evaluation.commands.load_placer import chosen_placers, classical_placers, divides_batch, finetuned
from evaluation.commands.problems import asked_runtime, check_cost_model, problem_of
from evaluation.commands.unlike_training import as_trained, unlike_training
from evaluation.comparing.compare import check_settings, compare
from evaluation.comparing.comparison import Comparison, short_name
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.identity import problem_digits
from evaluation.records.provenance import Provenance
from evaluation.records.run_files import EvaluationFile, Notes, ProblemFile
from graphs.files.load import load_clusters, load_graph, load_suite
from graphs.foundation.documents import write_document
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import check_writable, write_whole
from graphs.op_groups.grouping import MODULES
from graphs.problem import Problem
from graphs.runtime import IDEAL, LONGEST_PATH
from placers import default
from placers.contract.placer import Placer
from placers.contract.time_limit import Seconds
from placers.learned.lookup import placer_of
from placers.learned.policy_meta import load_meta
from training.runs.problem_sets import load_problems

if TYPE_CHECKING:
    from evaluation.commands.arguments import TimingOptions
    from training.loggers import Logger
    from training.runs.finetune import FineTuned

DEFAULT = "default"  # the released policy
PLAN, PROBLEM = "best.plan.json", "best.problem.json"  # of fine-tuning, in the run folder
AS_IN_PAPERS = "metis:default=true"  # the METIS that papers compare with; ours is tuned


def evaluate(
    policy: str | Path = DEFAULT, rivals: Sequence[str | Path | Placer] = (), suite: str = "", *,
    budget: int | Seconds = 16, seeds: int = 3, workers: Workers = 1, journal: Path | None = None,
    **options: Unpack[TimingOptions],
) -> Comparison:  # fmt: skip
    """Compare a policy, zero-shot, with rivals, as the verb `evaluate` says; the policy also answers unsimulated.

    Raises InputError, before a model is captured, for a folder without a policy, or without the recipe where that is
    needed, or that cannot be written to, and for what `compare` refuses.
    """
    released, cost_model = str(policy) == DEFAULT, options.get("cost_model", AUTO)
    folder = default.RELEASED if released else Path(policy)
    learned, greedy = (
        default.build(samples=samples) if released else placer_of(folder, samples=samples) for samples in (0, 1)
    )
    if isinstance(budget, Seconds):
        learned, _ = budget.given(learned)  # by its name in the records
    placers = [learned, greedy, *chosen_placers(rivals, [*classical_placers(), AS_IN_PAPERS])]
    kept = None if released or suite else folder / "evaluation.json"
    check_settings(seeds=range(seeds), workers=workers, journal=journal)
    check_writable(kept)
    check_cost_model(cost_model)
    exact = divides_batch(placers)  # what does not grow with the batch is then asked for
    problems = _problems(folder, suite, options, with_law=exact)
    if cost_model != AUTO:
        problems = [timed(problem, cost_model) for problem in problems]
    comparison = compare(placers, problems, budget=budget, seeds=range(seeds), workers=workers, journal=journal)
    limit = f"{budget} placements"
    if isinstance(budget, Seconds):
        limit = f"placements for {budget.value:g} s of the processor"
    remarks = (
        *comparison.remarks,
        f"Every placer may simulate {limit} of a problem and answers with the best of them; "
        f"{short_name(greedy.name)} is zero-shot: the policy's most likely placement, without others to choose from.",
        *([] if suite else unlike_training(folder, problems)),
        "Placers decide per op group; step times are simulated op by op.",
    )
    if kept is not None:
        notes = Notes(learned=learned.name, remarks=remarks)
        write_document(EvaluationFile(notes=notes, made=_made(placers, problems), records=comparison.records), kept)
    return replace_fields(comparison, remarks=remarks)


def _problems(folder: Path, suite: str, options: TimingOptions, *, with_law: bool) -> list[Problem]:
    """Those of a suite, or of the test split that the recipe of a policy names, run as that says or as is asked."""
    from training.runs.run_folder import CONFIG, RunFolder  # imported late: a refusal does not wait for torch

    settings = RunFolder(folder).problems
    load_clusters(settings.test_clusters)  # refused here, not after models were captured
    groups, precision = options.get("groups", AUTO), options.get("precision", AUTO)
    asked_for = None if groups == AUTO else tied_into(groups)
    if asked_for == MODULES:
        raise InputError("a policy is evaluated on a number of op groups, as it was trained on; give one")
    count = asked_for or settings.test_groups
    named = options.get("runtime", AUTO), options.get("order", AUTO), options.get("host", AUTO)
    runtimes = [asked_runtime(*named, default=each) for each in ((IDEAL,) if suite else settings.runtimes)]
    if suite:
        made = load_suite(suite, groups=count, optimizer=settings.optimizer, with_law=with_law, precision=precision)
        return [replace_fields(problem, runtime=runtimes[0]) for problem in made]
    asked = replace(
        settings, test_groups=count, runtime=tuple(each.name for each in runtimes), order=LONGEST_PATH.name,
        precision=settings.precision if precision == AUTO else precision,
    )  # fmt: skip
    with located(folder / CONFIG):  # which names what there may not be in this folder
        return load_problems(asked, "test", capture=partial(load_graph, with_law=with_law))


def finetune(
    run: Path, graph: str, cluster: str, *, optimizer: str, simulations: int, seed: int, loggers: Sequence[str] = (),
    **options: Unpack[TimingOptions],
) -> Comparison:  # fmt: skip
    """Fine-tune the policy of a run on one problem, and compare, as the verb `finetune` says.

    Raises InputError, before the graph is captured, for a folder without a policy or that cannot be written to, for
    what does not exist, and for a logger that will take no run; and if fine-tuning failed.
    """
    from training.loggers import check_access, forget_runs, opened  # with torch, which a refusal does not wait for

    cost_model = options.get("cost_model", AUTO)
    if not isinstance(cost_model, str):
        raise InputError("what was fine-tuned on is kept in a file; name the cost model, such as 'roofline'")
    start, greedy = placer_of(run), placer_of(run, samples=1)
    options = as_trained(run, options)
    groups = tied_into(options.get("groups", AUTO))
    results: list[FineTuned] = []
    tuner = finetuned(start, on_tuned=results.append)
    check_access(loggers)
    check_settings(seeds=(seed,), workers=1)
    folder = run / "finetune"
    check_writable(run / PLAN, run / PROBLEM, folder / "evaluation.json" if folder.is_dir() else None)
    placers = [tuner, start, greedy, *chosen_placers((), classical_placers())]
    problem = problem_of(graph, cluster, with_law=divides_batch(placers), optimizer=optimizer, **options)
    spec = ProblemFile(graph=graph, groups=groups, cluster=cluster, **asdict(Conditions.of(problem)))
    forget_runs(folder)
    asked = {"policy": start.name, "simulations": simulations, "seed": seed, **to_builtins(spec)}
    with opened(loggers, folder, asked) as receivers:
        tuner = finetuned(start, on_tuned=results.append, on_progress=partial(_log, receivers))
        comparison = compare([tuner, *placers[1:]], [problem], budget=simulations, seeds=(seed,))
    if not results:  # such as a policy that diverged; what the others found is no answer to the question
        raise InputError(next(failure.reason for failure in comparison.failures if failure.placer == tuner.name))
    remarks = (*comparison.remarks, *unlike_training(run, [problem]))
    notes = Notes(learned=tuner.name, before=greedy.name, remarks=remarks)
    made = _made(placers, [problem])
    _save_tuned(run, folder, results[0], EvaluationFile(notes=notes, made=made, records=comparison.records))
    write_document(spec, run / PROBLEM)
    SimulatedPlan.of(problem, results[0].result).save(run / PLAN)
    return replace_fields(comparison, remarks=remarks)


def _made(placers: Sequence[Placer], problems: Sequence[Problem]) -> Provenance:
    return Provenance.now(placers, [problem_digits(problem) for problem in problems])


def _log(loggers: Sequence[Logger], simulations: int, best_seconds: float) -> None:
    for logger in loggers:
        logger.write(simulations, {"best_seconds": best_seconds})


def _save_tuned(run: Path, folder: Path, tuned: FineTuned, evaluation: EvaluationFile) -> None:
    """Write what fine-tuning found; whenever that is stopped, no evaluation or plan is left that is of another run.

    For that the older ones are removed first, and an evaluation comes last.
    """
    from placers.learned.policy_file import save_policy  # imported late: with torch, which a refusal does not wait for

    folder.mkdir(exist_ok=True)
    for older in (run / PLAN, folder / "evaluation.json"):
        older.unlink(missing_ok=True)
    lines = [  # JSON has no infinity, which is how fast a plan is as long as none fits
        json.dumps({"simulations": count, "best_seconds": seconds if math.isfinite(seconds) else None})
        for count, seconds in tuned.history
    ]
    write_whole(folder / "metrics.jsonl", "".join(f"{line}\n" for line in lines))
    save_policy(folder, tuned.policy.state_dict(), load_meta(run))
    write_document(evaluation, folder / "evaluation.json")
