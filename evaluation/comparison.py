"""Comparison: what placers did on problems, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from rich.console import RenderableType

from evaluation.record import Failure, Record
from evaluation.statistics import Estimate, estimate, geometric_mean
from evaluation.tables import comparison_tables
from graphs import by_name
from graphs.errors import InputError
from graphs.op_graph import Bools, Floats

FINETUNED = "+finetuned"  # what a fine-tuned placer's name ends with


@dataclass(frozen=True)
class Summary:
    """One placer over all problems; the means are over the problems where its plan fits."""

    placer: str
    over_best: Estimate  # geometric mean of objective seconds over those of the best placer of each problem
    over_bound: Estimate  # ... over the lower bound of each problem
    fits: int  # problems on which the plan of every seed fits
    problems: int
    simulations: float  # mean per plan
    search_seconds: float  # mean per plan


@dataclass(frozen=True)
class Comparison:
    """The records of placers on problems, and what follows from them.

    Several seeds of a placer on a problem are one entry: the geometric mean of their step seconds, which counts as
    fitting only if all of them fit.
    """

    records: tuple[Record, ...]
    failures: tuple[Failure, ...] = ()

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
        return self._table(lambda cell: float(geometric_mean(np.array([r.step_seconds for r in cell]))))

    @cached_property
    def objective_seconds(self) -> Floats:
        """(problems, placers) the same of what the problems ask to make small: step time, or max-load."""
        return self._table(lambda cell: float(geometric_mean(np.array([r.objective_seconds for r in cell]))))

    @cached_property
    def has_max_load(self) -> bool:
        """Whether the objective is the max-load."""
        return any(record.max_load is not None for record in self.records)

    @cached_property
    def fits(self) -> Bools:
        """(problems, placers) whether the plan of every seed fits."""
        all_fit = self._table(lambda cell: float(all(record.fits for record in cell)))
        return np.equal(all_fit, 1.0)

    @cached_property
    def fitting_seconds(self) -> Floats:
        """(problems, placers) seconds of the objective; NaN where the plan does not fit."""
        return np.where(self.fits, self.objective_seconds, np.nan)

    @cached_property
    def lower_bound_seconds(self) -> Floats:
        """(problems,) seconds."""
        bound = {record.problem: record.lower_bound_seconds for record in self.records}
        return np.array([bound[problem] for problem in self.problems])

    @cached_property
    def over_best(self) -> Floats:
        """(problems, placers) ratio to the fastest placer that fits; NaN where the plan does not fit."""
        best = np.where(self.fits, self.objective_seconds, np.inf).min(axis=1, keepdims=True, initial=np.inf)
        ratio: Floats = self.fitting_seconds / best
        return ratio

    @cached_property
    def over_bound(self) -> Floats:
        """(problems, placers) ratio of step time to its lower bound; NaN where the plan does not fit."""
        ratio: Floats = np.where(self.fits, self.step_seconds, np.nan) / self.lower_bound_seconds[:, None]
        return ratio

    def relative(self, placer: str, to: str) -> Estimate:
        """Geometric mean of a placer's objective over another's, where both fit; below 1 it is the faster."""
        ratio = self.fitting_seconds[:, self._column(placer)] / self.fitting_seconds[:, self._column(to)]
        return _estimate(ratio)

    def summary(self) -> tuple[Summary, ...]:
        """A row per placer: first those that fit most often, among these the fastest."""
        rows = [self._summary(placer) for placer in self.placers]
        return tuple(sorted(rows, key=lambda row: (-row.fits, row.over_best.value if row.fits else 0.0)))

    def to_json(self) -> list[dict[str, Any]]:
        """The records as plain data."""
        records: list[dict[str, Any]] = msgspec.to_builtins(list(self.records))
        return records

    @classmethod
    def from_json(cls, records: object) -> Comparison:
        """From what `to_json` gave. Raises InputError, naming the field, for anything else."""
        try:
            return cls(msgspec.convert(records, tuple[Record, ...]))
        except msgspec.ValidationError as error:
            raise InputError(f"records of a comparison: {error}") from error

    def __rich__(self) -> RenderableType:
        return comparison_tables(self)

    def _column(self, placer: str) -> int:
        if placer not in self.placers:
            raise InputError(by_name.unknown("placer", placer, self.placers))
        return self.placers.index(placer)

    def _summary(self, placer: str) -> Summary:
        column = self._column(placer)
        own = [record for record in self.records if record.placer == placer]
        return Summary(
            placer=placer,
            over_best=_estimate(self.over_best[:, column]),
            over_bound=_estimate(self.over_bound[:, column]),
            fits=int(self.fits[:, column].sum()),
            problems=len({record.problem for record in own}),
            simulations=float(np.mean([record.simulations for record in own])),
            search_seconds=float(np.mean([record.search_seconds for record in own])),
        )

    def _table(self, value: Callable[[list[Record]], float]) -> Floats:
        cells: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            cells.setdefault((record.problem, record.placer), []).append(record)
        rows = [
            [value(cells[problem, placer]) if (problem, placer) in cells else np.nan for placer in self.placers]
            for problem in self.problems
        ]
        return np.array(rows, np.float64).reshape(len(self.problems), len(self.placers))


def short_name(placer: str) -> str:
    """A spec without its checkpoint: "gdp:checkpoint=runs/demo+finetuned" -> "gdp+finetuned"."""
    spec = placer.removesuffix(FINETUNED)
    name, _, knobs = spec.partition(":")
    kept = ",".join(knob for knob in knobs.split(",") if not knob.startswith("checkpoint="))
    return (f"{name}:{kept}" if kept else name) + placer[len(spec) :]


def _estimate(ratio: Floats) -> Estimate:
    """Over problems, as a sample of those that might have been."""
    return estimate([ratio[~np.isnan(ratio)]])
