"""The report of a run: one HTML file with everything in it, to look at, send and print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from envs.bounds import lower_bound
from envs.plan_file import load_plan
from envs.robustness import robustness
from evaluation.comparison import Comparison
from evaluation.drawing.figures import page
from evaluation.drawing.result_plots import Curve, Metrics, column, comparison_bars, learning_curve
from evaluation.drawing.share_plots import share_bars
from evaluation.drawing.split_plots import split_chart
from evaluation.drawing.timeline_plots import gantt_chart, memory_curves
from evaluation.reporting.findings import findings, tuning_findings
from evaluation.reporting.plan_table import plan_sentences, robustness_sentence, state
from evaluation.reporting.sections import Section, Sheet, device_sheet, placer_sheet, problem_sheet
from evaluation.run_files import EvaluationFile, load_evaluation, load_problem
from evaluation.simulated_plan import SimulatedPlan
from evaluation.split_rows import split_rows
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

TEMPLATE = Path(__file__).resolve().parent / "templates" / "report.html.j2"

TRAINING_CURVES = (
    Curve("step_over_bound", "Step time over the lower bound, mean of the samples (lower is better)"),
    Curve("fitting", "Share of the samples that fit in memory (higher is better)"),
    Curve("entropy", "Entropy of the policy, nats per decision (falls as it makes up its mind)"),
)
TUNING_CURVES = (
    Curve("best_seconds", "Best step time so far, in seconds (lower is better)", noisy=False),
    Curve("step_over_bound", "Step time over the lower bound, mean of the samples (lower is better)"),
)


def write_report(run: Path) -> Path:
    """Write `report.html` into a run folder, from what the folder holds; what it lacks is said in a sentence.

    Raises InputError if there is no such folder, or a file in it cannot be read.
    """
    if run.is_file():
        raise InputError(f"{run} is a file; name the folder that `placelab train` wrote")
    if not run.is_dir():
        raise InputError(f"run folder {run} does not exist; `placelab train --out {run}` makes one")
    if not any((run / name).is_file() for name in ("config.toml", "meta.json", "evaluation.json")):
        raise InputError(f"{run} holds no run of `placelab train`; name the folder that it wrote")
    meta = _meta(run)
    shown = [(key, meta[key]) for key in ("placer", "network", "seed", "updates", "simulations") if key in meta]
    facts = [(key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in shown]
    sections = [_training(run), _zero_shot(run), _tuning(run), _best_plan(run), _provenance(run, meta)]
    name, command = run.resolve().name, _text(run / "command.txt")
    path = run / "report.html"
    write_whole(path, page(TEMPLATE, name=name, facts=facts, command=command, sections=sections))
    return path


def _provenance(run: Path, meta: dict[str, Any]) -> Section:
    versions, config = meta.get("versions", {}), _text(run / "config.toml")
    sentences = (
        "Equal seeds, versions and settings give equal results, up to the order in which floating-point sums are taken."
        if versions
        else "This folder does not say which versions it was made with (meta.json is missing).",
    )
    return Section(
        "How to repeat it",
        sentences,
        sheet=Sheet(("", "version"), tuple(versions.items())) if versions else None,
        code=(("All settings", config),) if config else (),
    )


def _training(run: Path) -> Section:
    title = "Learning"
    metrics = _metrics(run / "metrics.jsonl")
    curves = _present(metrics, TRAINING_CURVES)
    if not curves:
        return Section(title, ("This folder holds no training metrics (metrics.jsonl).",))
    said = [f"{len(metrics):,} updates."]
    ratio = column(metrics, "step_over_bound")
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) >= 10:
        tenth = len(ratio) // 10
        first, last = ratio[:tenth].mean(), ratio[-tenth:].mean()
        said.append(
            f"In the first tenth of the training a sampled placement took {first:.2f} times the lower bound, in the "
            f"last tenth {last:.2f} times."
        )
    return Section(title, tuple(said), ((_figure(metrics, curves), "One point per update, and the running mean."),))


def _zero_shot(run: Path) -> Section:
    title = "Zero-shot: graphs it never saw"
    if not (run / "evaluation.json").is_file():
        return Section(title, (f"Not evaluated yet: `placelab evaluate {run}` compares it with the other placers.",))
    content = load_evaluation(run / "evaluation.json")
    if not content.records:
        return Section(title, ("The evaluation holds no records (evaluation.json).",))
    comparison, learned = Comparison(content.records), content.notes.learned
    said = findings(comparison, learned) if learned in comparison.placers else []
    caption = "Blue is the learned policy. " if learned in comparison.placers else ""
    caption += "Each bar is a step time over that of the best placer on the problem."
    bars = comparison_bars(comparison, highlight=(learned,))
    return Section(
        title,
        (*said, *comparison.ordering, *comparison.timing, *comparison.notes, *content.notes.remarks),
        ((Markup(bars), caption),),
        placer_sheet(comparison, learned),
        (("Step times on each problem", problem_sheet(comparison)),),
    )


def _tuning(run: Path) -> Section:
    title = "Fine-tuned on one problem"
    metrics = _metrics(run / "finetune" / "metrics.jsonl")
    path = run / "finetune" / "evaluation.json"
    is_compared = path.is_file()
    if not (is_compared or metrics):
        missing = f"Not fine-tuned yet: `placelab finetune {run}` does it, within a number of simulations."
        return Section(title, (missing,))
    content = load_evaluation(path) if is_compared else EvaluationFile(records=())
    comparison, learned, before = Comparison(content.records), content.notes.learned, content.notes.before
    said = list(content.notes.remarks)
    if learned in comparison.placers and before in comparison.placers:
        about = (*comparison.ordering, *comparison.timing, *comparison.notes)
        said = [*tuning_findings(comparison, before, learned), *about, *said]
    if not is_compared:
        said = ["The tuned policy was not compared with other placers (finetune/evaluation.json is missing)."]
    figures = []
    if curves := _present(metrics, TUNING_CURVES):
        levels = _levels(comparison, (learned, before), curves[0])
        caption = "Dashed: the fastest of the other placers on the same problem." if levels else "One point per update."
        figures.append((_figure(metrics, curves, levels), caption))
    sheet = placer_sheet(comparison, learned, single=len(comparison.problems) == 1) if is_compared else None
    return Section(title, tuple(said), tuple(figures), sheet)


def _best_plan(run: Path) -> Section:
    title = "The best plan, step by step"
    plan_file, problem_file = run / "best.plan.json", run / "best.problem.json"
    if not (plan_file.is_file() and problem_file.is_file()):
        return Section(title, ("No plan was kept in this folder (best.plan.json and best.problem.json).",))
    try:
        problem = load_problem(problem_file)
        plan = load_plan(plan_file, problem).plan
        found = SimulatedPlan.of(problem, plan)
        timeline, robust = found.timeline, robustness(problem, plan)
        said = [f"{problem.name}.", *plan_sentences(timeline, lower_bound(problem, plan), found.program_seconds)]
    except InputError as error:
        return Section(title, (f"The plan cannot be drawn: {error}.",))
    said.append(robustness_sentence(robust))
    doing = "What each device and, below, each of the busiest links was doing; blank is idle."
    holding = f"Memory held; darker: {state(problem)}; dashed: the limit, if near."
    spending = "What each device spends the step on; a bubble is a wait for what another device still computes."
    charts = ((gantt_chart, doing), (share_bars, spending), (memory_curves, holding))
    figures = tuple((Markup(chart(timeline)), caption) for chart, caption in charts)
    if plan.split:
        figures += ((Markup(split_chart(split_rows(problem, plan))), "What weights and activations are divided by."),)
    return Section(title, tuple(said), figures, device_sheet(timeline))


def _levels(comparison: Comparison, own: tuple[str, str], curve: Curve) -> dict[str, float]:
    """What the four fastest of the other placers reach on the one problem of the curve, in the curve's unit."""
    if len(comparison.problems) != 1:
        return {}
    values = comparison.fitting_seconds[0] if curve.column == "best_seconds" else comparison.over_bound[0]
    others = [
        (float(value), comparison.labels[placer])
        for placer, value in zip(comparison.placers, values, strict=True)
        if placer not in own and np.isfinite(value)
    ]
    return {label: value for value, label in sorted(others)[:4]}


def _present(metrics: Metrics, curves: tuple[Curve, ...]) -> list[Curve]:
    return [curve for curve in curves if np.isfinite(column(metrics, curve.column)).any()]


def _figure(metrics: Metrics, curves: list[Curve], levels: dict[str, float] | None = None) -> Markup:
    x = "simulations" if np.isfinite(column(metrics, "simulations")).any() else "update"
    return Markup(learning_curve(metrics, curves, x=x, levels=levels))


def _metrics(path: Path) -> Metrics:
    """The lines of a metrics file; one cut off at the end, by a run that was killed, is left out."""
    lines = _text(path).splitlines()
    metrics = []
    for number, line in enumerate(lines, start=1):
        try:
            metrics.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise InputError(f"{path}:{number}: {error}") from error
    return metrics


def _meta(run: Path) -> dict[str, Any]:
    path = run / "meta.json"
    try:
        return dict(json.loads(_text(path) or "{}"))
    except (json.JSONDecodeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    return read_file(path, "").decode(errors="replace").strip() if path.is_file() else ""
