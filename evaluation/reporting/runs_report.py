"""Several runs on one page: in what they differ, how they learned, what their policies are worth, and at what."""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from evaluation.comparing.comparison import Comparison
from evaluation.drawing.learning_curves import Curve, Metrics, Runs
from evaluation.drawing.sections import Section, Sheet, placer_sheet, results_page
from evaluation.records.formatting import NOTHING, ratio, seconds, share
from evaluation.records.statistics import FEWEST_PROBLEMS, FEWEST_SEEDS
from evaluation.reporting.findings import fastest_other
from evaluation.reporting.joined_runs import JoinedRuns
from evaluation.reporting.learning import (
    TRAINING_CURVES,
    VALIDATION_CURVES,
    curve_figure,
    first_and_last,
    kept_weights,
    present,
)
from evaluation.reporting.run_data import RunData
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_links

KICKER = "placelab: training runs compared"
UNSEEN = "unseen:"  # how the heads of measures on graphs that runs never saw begin
LONG = 12  # problems in a table that is not folded


@dataclass(frozen=True)
class Measure:
    """A number by which runs are compared: the smaller the better, unless larger is."""

    head: str
    strength: str  # what a run is best at that is best by it; "" where another measure says that
    values: tuple[float, ...]  # (runs,) NaN where it is not known
    written: Callable[[float], str]
    larger: bool = False

    def text(self, run: int) -> str:
        """A run's value for people."""
        return NOTHING if np.isnan(self.values[run]) else self.written(self.values[run])

    @property
    def best(self) -> int:
        """The run that is best by it; -1 where fewer than two have it, or all are equal."""
        known = [value for value in self.values if not np.isnan(value)]
        if len(known) < 2 or min(known) == max(known):
            return -1
        return int(np.nanargmax(self.values) if self.larger else np.nanargmin(self.values))


def write_runs_report(folders: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page that compares runs; unless told where, `comparison.html` in the folder that they have in common.

    Raises InputError for what is no run, for a run that is given twice, and for files that cannot be read.
    """
    runs = [RunData.of(folder) for folder in folders]
    where = [run.folder.resolve() for run in runs]
    if again := [run for run, path in zip(runs, where, strict=True) if where.count(path) > 1]:
        raise InputError(f"run {again[0].folder} is given twice; name each run once")
    common = Path(os.path.commonpath([path.parent for path in where]))
    names = _names(where, common)
    path = common / "comparison.html" if out is None else out
    if out is None:
        check_links(path)
    joined = JoinedRuns.of(runs, names)
    sections = [
        _glance(runs, names, joined), _differences(runs, names), _learning(runs, names), _validation(runs, names),
        *_zero_shot(joined), _tuned(runs, names), _sources(runs, names, path),
    ]  # fmt: skip
    shown = [section for section in sections if section is not None]
    return results_page(path, " · ".join(names), KICKER, shown)


def _names(where: Sequence[Path], common: Path) -> list[str]:
    """The folders' names or, where two share one, their paths."""
    names = [path.name for path in where]
    return names if len(set(names)) == len(names) else [str(path.relative_to(common)) for path in where]


def _glance(runs: Sequence[RunData], names: Sequence[str], joined: JoinedRuns | None) -> Section:
    """A row per run and a column per number that any of them has, and what each is best at."""
    measures = _measures(runs, joined)
    facts = [(key, [_fact(run, key) for run in runs]) for key in ("placer", "seed", "updates", "simulations")]
    rows = []
    for number, name in enumerate(names):
        cells = (f"{measure.text(number)}{' *' if measure.best == number else ''}" for measure in measures)
        rows.append((name, *(values[number] for _, values in facts), *cells))
    heads = ("run", *(key for key, _ in facts), *(measure.head for measure in measures))
    note = "* the best of these runs." if any(measure.best >= 0 for measure in measures) else ""
    return Section("At a glance", _strengths(names, measures, joined), sheets=(Sheet(heads, tuple(rows), note=note),))


def _measures(runs: Sequence[RunData], joined: JoinedRuns | None) -> list[Measure]:
    kept = [kept_weights(run.validation) for run in runs]
    validated = [np.nan if each is None else each["step_over_bound"] or np.nan for each in kept]
    last = tuple(first_and_last(run.metrics)[1] for run in runs)
    found = [
        Measure("last samples over bound", "samples at the end of its training, {} times the bound", last, ratio),
        Measure("validation over bound", "validation, {} times the bound", tuple(validated), ratio),
    ]
    if joined is not None:
        mean, wins = (
            "graphs that it never saw, {} times the best of these runs",
            "fastest on {} graphs that it never saw",
        )
        found += [
            Measure(f"{UNSEEN} over best run", mean, joined.means, ratio),
            Measure(f"{UNSEEN} fastest on", wins, joined.wins, "{:.0f}".format, larger=True),
            Measure(f"{UNSEEN} times as fast as best rule", "", joined.speedups, ratio, larger=True),
            Measure(f"{UNSEEN} plans that fit", "{} of its plans fit", joined.fitting, share, larger=True),
        ]
    return [measure for measure in found if not np.isnan(measure.values).all()]


def _strengths(names: Sequence[str], measures: Sequence[Measure], joined: JoinedRuns | None) -> tuple[str, ...]:
    """What each run is best at, in a sentence."""
    said = []
    if joined is not None and len(joined.runs_only.problems) < FEWEST_PROBLEMS:
        measures = [each for each in measures if not each.head.startswith(UNSEEN)]
        said = [f"Fewer than {FEWEST_PROBLEMS} graphs that they never saw are too few to say which is better there."]
        joined = None
    for number, name in enumerate(names):
        best = [each.strength.format(each.text(number)) for each in measures if each.strength and each.best == number]
        if joined is not None and (families := joined.families_led_by(number)):
            best.append(f"the famil{'ies' if len(families) > 1 else 'y'} {', '.join(families)}")
        sentence = f"{name} is best at: {'; '.join(best)}." if best else f"{name} is best at none of these numbers."
        said.append(sentence + ("" if joined is None else joined.gain(number)))
    return tuple(said)


def _differences(runs: Sequence[RunData], names: Sequence[str]) -> Section:
    rows = differences(runs)
    title = "In what they differ"
    if not rows:
        return Section(title, ("Recipes, seeds and versions are the same.",))
    note = f"Keys that are the same in all runs are left out. {NOTHING}: the run does not say it."
    return Section(title, sheets=(Sheet(("key", *names), tuple(rows), note=note, words=len(names) + 1),))


def _learning(runs: Sequence[RunData], names: Sequence[str]) -> Section | None:
    about = "Running means, and what they are of; one axis for all runs."
    figures = _curves(_of_seeds(runs, names, lambda run: run.metrics), TRAINING_CURVES, about)
    return Section("Learning", figures=figures) if figures else None


def _validation(runs: Sequence[RunData], names: Sequence[str]) -> Section | None:
    validated = {name: run.validation for name, run in zip(names, runs, strict=True) if run.validation}
    about = "Greedy plans of problems that no run learns from."
    figures = _curves(_of_seeds(runs, names, lambda run: run.validation), VALIDATION_CURVES, about)
    if not figures:
        return None
    rows = []
    for name, records in validated.items():
        kept = kept_weights(records)
        best = ("-", "-", "-") if kept is None else (
            f"{kept['update']:,.0f}", ratio(kept["step_over_bound"] or np.nan), share(kept["fitting"] or 0.0)
        )  # fmt: skip
        rows.append((name, str(len(records)), *best))
    heads = ("run", "validated", "kept: update", "over bound", "plans that fit")
    return Section("Validation", sheets=(Sheet(heads, tuple(rows)),), figures=figures)


def _of_seeds(runs: Sequence[RunData], names: Sequence[str], metrics: Callable[[RunData], Metrics]) -> Runs:
    """Metrics of each run by its name; together, those of a recipe's seeds, if these are enough for a band."""
    recipes = defaultdict[str, list[tuple[str, RunData]]](list)
    for name, run in zip(names, runs, strict=True):
        if metrics(run):
            same = {key: value for key, value in _settings(run).items() if key != "seed"}
            recipes[json.dumps(same, sort_keys=True, default=str)].append((name, run))
    found: dict[str, list[Metrics]] = {}
    for some in recipes.values():
        each = {name: [metrics(run)] for name, run in some}
        if len({run.meta.get("seed") for _, run in some}) == len(some) >= FEWEST_SEEDS:
            each = {f"{', '.join(each)}: mean": [metrics(run) for _, run in some]}
        found |= each
    return found


def _curves(runs: Runs, curves: Sequence[Curve], about: str) -> tuple[tuple[Markup, str], ...]:
    metrics = [each for seeds in runs.values() for each in seeds]
    there = [curve for curve in curves if any(present(each, [curve]) for each in metrics)]
    if not there:
        return ()
    band = " Of seeds of one recipe the mean, and a band from the least to the largest." * (len(metrics) > len(runs))
    return ((curve_figure(runs, there), about + band),)


def _zero_shot(joined: JoinedRuns | None) -> list[Section | None]:
    title = "On graphs that they never saw"
    if joined is None:
        return [Section(title, ("No two of the runs are evaluated on the same graphs (`placelab evaluate RUN`).",))]
    comparison, sheet = joined.comparison, joined.problem_sheet()
    is_long = len(joined.runs_only.problems) > LONG
    folded = (("Step times on each problem", sheet),) if is_long else ()
    sheets = [placer_sheet(comparison, joined.names)]
    sheets += [joined.family_sheet()] if len(joined.families) > 1 else []
    sheets += [] if is_long else [sheet]
    return [Section(title, joined.remarks, sheets=tuple(sheets), folded=folded)]


def _tuned(runs: Sequence[RunData], names: Sequence[str]) -> Section | None:
    """Each run's fine-tuning, on its own problem."""
    rows = []
    for name, run in zip(names, runs, strict=True):
        if run.tuned is None or not run.tuned.records:
            continue
        comparison, notes = Comparison(run.tuned.records), run.tuned.notes
        if notes.learned not in comparison.placers:
            continue
        before, after = (_seconds(comparison, placer) for placer in (notes.before, notes.learned))
        rival = fastest_other(comparison, notes.before, notes.learned)
        record = next(each for each in run.tuned.records if each.placer == notes.learned)
        best = NOTHING if rival is None else f"{comparison.labels[rival]}, {seconds(_seconds(comparison, rival))}"
        rows.append((name, comparison.problems[0], seconds(before), seconds(after), f"{record.simulations:,}", best))
    heads = ("run", "problem", "before", "after", "simulations", "fastest other placer")
    return Section("Fine-tuned on one problem", sheets=(Sheet(heads, tuple(rows), words=2),)) if rows else None


def _seconds(comparison: Comparison, placer: str) -> float:
    """Of its plan on the first problem, if that fits; otherwise NaN."""
    if placer not in comparison.placers:
        return float("nan")
    return float(comparison.fitting_seconds[0, comparison.placers.index(placer)])


def _sources(runs: Sequence[RunData], names: Sequence[str], page_file: Path) -> Section:
    """The folders, their commands and their own reports."""
    rows = []
    for name, run in zip(names, runs, strict=True):
        own = run.folder / "report.html"
        link = Path(os.path.relpath(own.resolve(), page_file.resolve().parent)).as_posix()
        there = Markup('<a href="{}">{}</a>').format(quote(link), link)  # quoted: "javascript:" may name a folder
        shown = there if own.is_file() else f"placelab report {run.folder}"
        rows.append((name, shown, run.command or NOTHING))
    logs = ",".join(
        f"{name}:{run.folder / 'tensorboard'}" for name, run in zip(names, runs, strict=True) if run.tensorboard
    )
    said = ("TensorBoard shows all that was logged:",) if logs else ()
    commands = (f"tensorboard --logdir_spec {logs}",) if logs else ()
    return Section(
        "The runs", said, sheets=(Sheet(("run", "report", "command"), tuple(rows), words=3),), commands=commands
    )


def _fact(run: RunData, key: str) -> str:
    value = run.meta.get(key, run.settings.get(key))
    if value is None and key == "updates" and run.metrics:
        value = len(run.metrics)  # of a run that is still going, or was stopped
    return NOTHING if value is None else f"{value:,}" if isinstance(value, int) else str(value)


MISSING = "-"


def differences(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """A row per key that has not the same value in all runs: the key, and each run's value."""
    each = [_settings(run) for run in runs]
    keys = list(dict.fromkeys(key for settings in each for key in settings))
    rows = [(key, *(_written(settings, key) for settings in each)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings(run: RunData) -> dict[str, Any]:
    seed = {"seed": run.meta["seed"]} if "seed" in run.meta else {}
    versions = {f"version of {name}": version for name, version in run.meta.get("versions", {}).items()}
    return {**seed, **run.settings, **versions}


def _written(settings: dict[str, Any], key: str) -> str:
    """A value as a recipe has it, but for the quotes of text."""
    if key not in settings:
        return MISSING
    value = settings[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
