"""Comparison: what placers did on problems, what follows from it, and its tables for the terminal."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from envs.objectives import rate_of
from evaluation.records import formatting
from evaluation.records.printed import Printed
from evaluation.records.record import Failure, Record
from evaluation.records.statistics import Estimate, estimate, geometric_mean
from evaluation.tables.objectives_table import MeanWorth, Worth, mean_objectives_table, objectives_table
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats
from graphs.problem import STEP_TIME

FINETUNED = "+finetuned"  # what a fine-tuned placer's name ends with
ROBUST = {"median": "robust_seconds", "worst": "worst_seconds", "free": "free_seconds"}  # heads of records' fields
MANY = 14  # placers that a line of a table can hold
NAME = 20  # characters of a placer's name that a line of a table has room for, at least


@dataclass(frozen=True)
class Summary:
    """One placer over all problems; the means are over the problems where its plan fits."""

    placer: str
    over_best: Estimate  # geometric mean of objective seconds over those of the best placer of each problem
    over_bound: Estimate  # ... over the lower bound of each problem
    program: Estimate  # ... of step seconds in PyTorch's own order over those in the plan's
    fits: int  # problems on which the plan of every seed fits
    problems: int
    simulations: float  # mean per plan
    search_seconds: float  # of the processor, mean per plan


@dataclass(frozen=True)
class Comparison(Printed):
    """The records of placers on problems, and what follows from them.

    Several seeds of a placer on a problem are one entry: the geometric mean of their step seconds, which counts as
    fitting only if all of them fit.
    """

    records: tuple[Record, ...]
    failures: tuple[Failure, ...] = ()
    remarks: tuple[str, ...] = ()  # sentences, such as on how many op groups were placed

    @cached_property
    def placers(self) -> tuple[str, ...]:
        """In the order of the records."""
        return tuple(dict.fromkeys(record.placer for record in self.records))

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """In the order of the records."""
        return tuple(dict.fromkeys(record.problem for record in self.records))

    @cached_property
    def labels(self) -> dict[str, str]:
        """A short name for each placer: without the checkpoint's folder, where that leaves no doubt."""
        short = {placer: short_name(placer) for placer in self.placers}
        count = Counter(short.values())
        return {placer: label if count[label] == 1 else placer for placer, label in short.items()}

    @cached_property
    def step_seconds(self) -> Floats:
        """(problems, placers) seconds, whether or not the plan fits; NaN without a record."""
        return self.mean_seconds("step_seconds")

    def mean_seconds(self, field: str) -> Floats:
        """(problems, placers) the same of another field of the records that is in seconds; NaN where one has none."""
        return self._by_pair(
            lambda some: float(geometric_mean(np.array([getattr(record, field) for record in some], np.float64)))
        )

    @cached_property
    def objective_seconds(self) -> Floats:
        """(problems, placers) the same of the objective."""
        return self.mean_seconds("objective_seconds")

    @cached_property
    def objective(self) -> str:
        """The objective of the problems, by name; several with commas between them."""
        named = ["max-load" if record.max_load is not None else record.objective for record in self.records]
        return ", ".join(name for name in dict.fromkeys(named) if name != STEP_TIME.name) or STEP_TIME.name

    @cached_property
    def is_robust(self) -> bool:
        """Whether plans are ranked by their median step time under noise."""
        return bool(self.records) and all(record.robust_seconds is not None for record in self.records)

    @cached_property
    def timing(self) -> tuple[str, ...]:
        """Sentences: the cost models that timed the ops, if the records name any, and what to expect of them."""
        timed = {record.problem: record.cost_model for record in self.records if record.cost_model}
        models = tuple(dict.fromkeys(timed.values()))
        remarks = tuple(dict.fromkeys(sentence for record in self.records for sentence in record.timing_remarks))
        if len(models) == 1 and len(timed) == len(self.problems):
            return (f"Cost model: {models[0]}.", *remarks)
        each = (f"{model} ({', '.join(name for name in timed if timed[name] == model)})" for model in models)
        return (f"Cost models: {'; '.join(each)}.", *remarks) if models else ()

    @cached_property
    def ordering(self) -> tuple[str, ...]:
        """Sentences: the runtimes and the orders under which the step times hold, and whose; what heads a column."""
        runtimes: dict[str, dict[str, None]] = {}
        orders: dict[str, dict[str, None]] = {}
        for record in self.records:
            if record.conditions.runtime:  # earlier records do not say it
                runtimes.setdefault(record.conditions.runtime, {})[record.problem] = None
            orders.setdefault(record.order, {})[self.labels[record.placer]] = None
        said = (*_one_or_each("Runtime", runtimes), *_one_or_each("Order", orders))
        known = np.isfinite(self.program_seconds).any()
        return (*said, "Under program: the same placements in PyTorch's own order.") if known else said

    @cached_property
    def program_seconds(self) -> Floats:
        """(problems, placers) seconds of the same placements in PyTorch's own order; NaN where that is not known."""
        known = [record for record in self.records if record.program_seconds is not None]
        return self.mean_seconds("program_seconds") if len(known) == len(self.records) else self.step_seconds * np.nan

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The placers' notes on their plans, each sentence once."""
        said: dict[tuple[str, str], dict[str, None]] = {}
        for record in self.records:
            for note in record.notes:
                said.setdefault((record.placer, note), {})[record.problem] = None
        everywhere = len(self.problems)
        where = {key: "" if len(on) == everywhere else f" on {', '.join(on)}" for key, on in said.items()}
        own = ((placer, note.removeprefix(f"{placer.partition(':')[0]}: "), on) for (placer, note), on in where.items())
        return tuple(f"{self.labels[placer]}{on}: {note}" for placer, note, on in own)

    @cached_property
    def fits(self) -> Bools:
        """(problems, placers) whether the plan of every seed fits."""
        return np.equal(self._by_pair(lambda some: float(all(record.fits for record in some))), 1.0)

    @cached_property
    def fitting_seconds(self) -> Floats:
        """(problems, placers) seconds of the objective; NaN where the plan does not fit."""
        return np.where(self.fits, self.objective_seconds, np.nan)

    @cached_property
    def lower_bound_seconds(self) -> Floats:
        """(problems,) seconds that none of the plans can beat, whichever of them divide the batch."""
        bound = dict.fromkeys(self.problems, np.inf)
        for record in self.records:
            bound[record.problem] = min(bound[record.problem], record.lower_bound_seconds)
        return np.array(list(bound.values()))

    @cached_property
    def over_best(self) -> Floats:
        """(problems, placers) ratio to the fastest placer that fits; NaN where the plan does not fit."""
        best = np.where(self.fits, self.objective_seconds, np.inf).min(axis=1, keepdims=True, initial=np.inf)
        return _ratio(self.fitting_seconds, best)

    @cached_property
    def over_bound(self) -> Floats:
        """(problems, placers) ratio of step time to its lower bound; NaN where the plan does not fit."""
        return _ratio(np.where(self.fits, self.step_seconds, np.nan), self.lower_bound_seconds[:, None])

    @cached_property
    def latency_over_alone(self) -> Floats:
        """(problems, placers) ratio of latencies to that of one device alone; NaN where the plan does not fit."""
        latency = np.where(self.fits, self.mean_seconds("latency_seconds"), np.nan)
        return _ratio(latency, self.mean_seconds("alone_seconds"))

    def relative(self, placer: str, to: str) -> Estimate:
        """Geometric mean of a placer's objective over another's, where both fit; below 1 it is the faster.

        Raises InputError for a placer that has no records.
        """
        if strangers := [name for name in (placer, to) if name not in self.placers]:
            raise InputError(by_name.unknown("placer", strangers[0], self.placers))
        own, other = (self.fitting_seconds[:, self.placers.index(name)] for name in (placer, to))
        return _estimate(own / other)

    def summary(self) -> tuple[Summary, ...]:
        """A row per placer: first those that fit most often, among these the fastest."""
        rows = []
        for column, placer in enumerate(self.placers):
            own = [record for record in self.records if record.placer == placer]
            row = Summary(
                placer=placer,
                over_best=_estimate(self.over_best[:, column]),
                over_bound=_estimate(self.over_bound[:, column]),
                program=_estimate(_ratio(self.program_seconds, self.step_seconds)[self.fits[:, column], column]),
                fits=int(self.fits[:, column].sum()),
                problems=len({record.problem for record in own}),
                simulations=float(np.mean([record.simulations for record in own])),
                search_seconds=float(np.mean([record.search_seconds for record in own])),
            )
            rows.append(row)
        return tuple(sorted(rows, key=lambda row: (-row.fits, row.over_best.value if row.fits else 0.0)))

    def to_json(self) -> list[dict[str, Any]]:
        """The records as plain data."""
        records: list[dict[str, Any]] = msgspec.to_builtins(list(self.records))
        return records

    def _shown(self) -> RenderableType:
        return comparison_tables(self)

    def _by_pair(self, value: Callable[[list[Record]], float]) -> Floats:
        """(problems, placers) a value of the records of each pair; NaN without a record."""
        pairs: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            pairs.setdefault((record.problem, record.placer), []).append(record)
        found = np.full((len(self.problems), len(self.placers)), np.nan)
        for (problem, placer), some in pairs.items():
            found[self.problems.index(problem), self.placers.index(placer)] = value(some)
        return found


def short_name(placer: str) -> str:
    """A spec without its checkpoint: "gdp:checkpoint=runs/demo+finetuned" -> "gdp+finetuned"."""
    spec = placer.removesuffix(FINETUNED)
    name, _, knobs = spec.partition(":")
    kept = ",".join(knob for knob in knobs.split(",") if not knob.startswith("checkpoint="))
    return (f"{name}:{kept}" if kept else name) + placer[len(spec) :]


def comparison_tables(comparison: Comparison) -> RenderableType:
    """Step times per problem, if a line can hold them, and, of several problems, the summary; and what failed."""
    failed: list[RenderableType] = [failure_table(comparison)] if comparison.failures else []
    said = (*comparison.notes, *comparison.ordering, *comparison.timing, *comparison.remarks)
    failed += [Text(sentence) for sentence in said]
    failed = [*_by_each_objective(comparison), *failed]
    if len(comparison.problems) == 1:
        return Group(placer_table(comparison), *failed)
    if len(comparison.placers) > MANY:
        return Group(summary_table(comparison), *failed)
    return Group(problem_table(comparison), "", summary_table(comparison), *failed)


def _by_each_objective(comparison: Comparison) -> list[RenderableType]:
    """What plans are worth by each objective, where that is known of every problem."""
    latency, rows = comparison.mean_seconds("latency_seconds"), comparison.summary()
    if not np.isfinite(latency).any(axis=1).all():
        return []
    if len(comparison.problems) > 1:
        columns = [(row, comparison.placers.index(row.placer)) for row in rows]
        return [
            mean_objectives_table([
                MeanWorth(
                    comparison.labels[row.placer], row.over_best, _estimate(comparison.latency_over_alone[:, column])
                )
                for row, column in columns
            ])
        ]  # fmt: skip
    worth = []
    for row in rows:
        column = comparison.placers.index(row.placer)
        record = next(record for record in comparison.records if record.placer == row.placer)
        worth.append(
            Worth(
                comparison.labels[row.placer], bool(row.fits), comparison.step_seconds[0, column], record.samples,
                latency[0, column], record.micro_batch_samples, comparison.latency_over_alone[0, column],
            )
        )  # fmt: skip
    return [objectives_table(worth)]


def failure_table(comparison: Comparison) -> Table:
    """The placers that gave no plan, for which problem, and why."""
    table = formatting.table("Failed", *(Column(head, overflow="fold") for head in ("placer", "problem", "reason")))
    for failure in comparison.failures:
        table.add_row(failure.placer, failure.problem, failure.reason, style="yellow")
    return table


def placer_table(comparison: Comparison) -> Table:
    """Every figure of each placer on a single problem: a row per placer, the fastest first."""
    own = () if comparison.objective == STEP_TIME.name else (comparison.objective,)
    robust = ROBUST if comparison.is_robust else {}
    heads = (
        *own,
        "step",
        "program",
        *robust,
        "over best",
        "over bound",
        "fits",
        "fullest device",
        "simulations",
        "CPU seconds",
    )
    widest = min(max(map(len, comparison.labels.values())), NAME)
    caption = (
        f"Over best: {_ranked_by(comparison)} over that of the best placer; over bound: step time over a lower bound."
    )
    columns = [Column("placer", min_width=widest), *formatting.numbers(*heads)]
    table = formatting.table(comparison.problems[0], *columns, caption=caption)
    for row in comparison.summary():
        column = comparison.placers.index(row.placer)
        peak = max(max(record.peak_bytes) for record in comparison.records if record.placer == row.placer)
        table.add_row(
            comparison.labels[row.placer],
            *(formatting.worth(name, comparison.objective_seconds[0, column]) for name in own),
            formatting.seconds(comparison.step_seconds[0, column]),
            formatting.seconds(comparison.program_seconds[0, column]),
            *(formatting.seconds(comparison.mean_seconds(field)[0, column]) for field in robust.values()),
            formatting.ratio(row.over_best.value),
            formatting.ratio(row.over_bound.value),
            "yes" if row.fits else Text("no", style="yellow"),
            formatting.memory(peak),
            f"{row.simulations:,.0f}",
            f"{row.search_seconds:.2f}",
            style="bold" if row.over_best.value == 1.0 else "",
        )
    return table


def problem_table(comparison: Comparison) -> Table:
    """Step time of each placer on each problem; the fastest that fits in bold, what does not fit in brackets."""
    what = _ranked_by(comparison)
    caption = (
        f"{what[0].upper()}{what[1:]}, less is better. Bold: fastest that fits. In brackets: does not fit in memory."
    )
    labels = [comparison.labels[placer].replace("_", "_\n") for placer in comparison.placers]
    columns = formatting.numbers("bound" if comparison.objective == STEP_TIME.name else "step bound", *labels)
    for column in columns[1:]:
        column.overflow = "fold"
    table = formatting.table("Per problem", Column("problem", no_wrap=True), *columns, caption=caption)
    for row, problem in enumerate(comparison.problems):
        bound = formatting.seconds(comparison.lower_bound_seconds[row])
        cells = zip(step_texts(comparison, comparison.objective_seconds, row), comparison.over_best[row], strict=True)
        styled = (Text(text, "bold green" if best == 1.0 else "dim" if "(" in text else "") for text, best in cells)
        table.add_row(Text(problem.replace("@", "\n@")), bound, *styled)
    return table


def summary_table(comparison: Comparison) -> Table:
    """Means over the problems, with their intervals."""
    caption = (
        f"Geometric means of {_ranked_by(comparison)} over that of the best placer and of step time over its lower "
        "bound, less is better, over the problems where the plan fits; in brackets, of five problems or more, 95% "
        "intervals, had others been drawn. Under program: how many times as long the same placements take in PyTorch's "
        "own order. Simulations and seconds of the processor are means per plan."
    )
    heads = formatting.numbers("over best", "over bound", "program", "fits", "simulations", "CPU seconds")
    table = formatting.table("Over all problems", Column("placer", overflow="fold"), *heads, caption=caption)
    for row in comparison.summary():
        table.add_row(
            comparison.labels[row.placer], formatting.interval(row.over_best), formatting.interval(row.over_bound),
            formatting.ratio(row.program.value),
            Text(f"{row.fits}/{row.problems}", "" if row.fits == row.problems else "yellow"),
            f"{row.simulations:,.0f}", f"{row.search_seconds:.2f}",
        )  # fmt: skip
    return table


def _one_or_each(what: str, whose: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """A sentence that names one thing, or several and whose each is; none for nothing."""
    if len(whose) <= 1:
        return tuple(f"{what}: {name}." for name in whose)
    each = "; ".join(f"{name} ({', '.join(some)})" for name, some in whose.items())
    return (f"{what}s: {each}.",)


def _ratio(seconds: Floats, to: Floats) -> Floats:
    """NaN where there is nothing to compare with: a step that takes no time, or never ends."""
    ratio: Floats = seconds / np.where((to > 0) & np.isfinite(to), to, np.nan)
    return ratio


def _estimate(ratio: Floats) -> Estimate:
    """Over problems, as a sample of those that might have been."""
    return estimate([ratio[~np.isnan(ratio)]])


def _ranked_by(comparison: Comparison) -> str:
    if comparison.is_robust:
        return "median step time under noise"
    if rate := rate_of(comparison.objective):
        return f"time per {rate.removesuffix('/s').removesuffix('s')}"  # in tables of seconds
    return "step time" if comparison.objective == STEP_TIME.name else comparison.objective


def step_texts(comparison: Comparison, values: Floats, row: int) -> list[str]:
    """A row of (problems, placers) seconds for people; in brackets where the plan does not fit."""
    shown = zip(map(formatting.seconds, values[row]), comparison.fits[row] | np.isnan(values[row]), strict=True)
    return [text if bare else f"({text})" for text, bare in shown]
