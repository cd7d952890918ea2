"""Findings: how far predictions are from what was measured, of steps, of ratios between plans, and of memory."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr

from evaluation.records.step_errors import StepError, StepErrors
from evaluation.studies.measured.predictions import Prediction
from evaluation.studies.measured.questions import GPUS, as_read, why_not
from evaluation.studies.measured.rows import AllReduce, Row
from evaluation.studies.measured.variants import MEASURED, Variant

FEWEST_PLANS = 4  # of a group from which one is chosen


@dataclass(frozen=True)
class Errors:
    """Relative errors: predicted over measured, less one."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Errors:
        """Of these errors, of which there may be none."""
        return cls(tuple(values))

    @property
    def size(self) -> float:
        """The median without sign."""
        return float(np.median(np.abs(self.values)))

    @property
    def signed(self) -> float:
        """The median with sign: below 0, predictions are too small."""
        return float(np.median(self.values))

    def cells(self) -> list[str]:
        """How many, median without and with sign, and the range."""
        if not self.values:
            return ["0", "-", "-", "-"]
        low, high = 100 * min(self.values), 100 * max(self.values)
        return [str(len(self.values)), percent(self.size), f"{100 * self.signed:+.1f}%", f"{low:+.0f} to {high:+.0f}%"]


class Compared(NamedTuple):
    """A row, and what is said of it."""

    row: Row
    said: Prediction

    @property
    def error(self) -> float:
        """Of its seconds."""
        return self.said.seconds / self.row.seconds - 1

    @property
    def memory_error(self) -> float:
        """Of its peak as it was read, which may be that of all devices together."""
        peaks = [as_read(self.row, peak) for peak in self.said.peaks]
        peak = sum(peaks) if "sum over" in self.row.peak_kind else max(peaks)
        return peak / self.row.peak_bytes - 1

    @property
    def each_sample(self) -> tuple[float, float]:
        """Seconds of a GPU for a sample, measured and predicted."""
        share = self.row.gpus / self.row.global_batch
        return self.row.seconds * share, self.said.seconds * share


class Choice(NamedTuple):
    """What comes of choosing the plan that is predicted to be fastest."""

    lost: float  # by how much it is slower than the fastest that was measured
    rank: float  # Spearman's correlation of predicted and measured seconds


@dataclass(frozen=True)
class VariantFindings:
    """What one variant says."""

    variant: Variant
    compared: Sequence[Compared]  # of rows that have a prediction

    @property
    def timed(self) -> list[Compared]:
        """Those whose seconds mean something by themselves, without the ones that may set constants."""
        return [each for each in self._all_timed if each.row.judges]

    @property
    def setting(self) -> list[Compared]:
        """Those that may set constants."""
        return [each for each in self._all_timed if not each.row.judges]

    @property
    def _all_timed(self) -> list[Compared]:
        return [each for each in self.compared if each.row.seconds and each.row.use == "score"]

    def errors(self, by: Callable[[Row], str]) -> dict[str, Errors]:
        """Of seconds, by what a row is, the largest part first."""
        found: dict[str, list[float]] = defaultdict(list)
        for each in self.timed:
            found[by(each.row)].append(each.error)
        return {name: Errors.of(found[name]) for name in sorted(found, key=lambda name: (-len(found[name]), name))}

    def tables(self) -> dict[str, dict[str, Errors]]:
        """Of seconds, by how many GPUs, which, kind of plan and source; with those rows that may set constants."""
        by_source = self.errors(lambda row: row.source)
        if self.setting:
            name = f"{self.setting[0].row.source}, groups that may set constants"
            by_source[name] = Errors.of(each.error for each in self.setting)
        by_gpu, by_plan = self.errors(lambda row: row.gpu), self.errors(lambda row: row.plan)
        by_number = self.errors(lambda row: "one" if row.gpus == 1 else "several")
        return {"GPUs": by_number, "GPU": by_gpu, "kind of plan": by_plan, "source": by_source}

    def cells(self) -> list[str]:
        """Of the document's first table: errors of steps, ratios, choices and memory, and what is said not to fit."""
        ratios, choices, memory = self.ratios(), self.choices(), self.memory()
        lost = [percent(float(np.mean([each.lost for each in choices])))] if choices else ["-"]
        rank = [f"{np.mean([each.rank for each in choices]):.2f}"] if choices else ["-"]
        return [
            *Errors.of(each.error for each in self.timed).cells(), ratios.cells()[1], ratios.cells()[0], *lost, *rank,
            str(len(choices)), *memory.cells()[:3], f"{len(self.unfit())} of {len(self.compared)}",
        ]  # fmt: skip

    def ratios(self) -> Errors:
        """Of ratios between a plan and the plainest one for the same model and GPUs: of GPU seconds for a sample."""
        errors = list[float]()
        for some in self._grouped(_family):
            base = min(some, key=lambda each: _plainness(each.row))
            measured, said = base.each_sample
            errors += [
                (each.each_sample[1] / said) / (each.each_sample[0] / measured) - 1
                for each in some if each is not base
            ]  # fmt: skip
        return Errors.of(errors)

    def choices(self) -> list[Choice]:
        """Of each group of plans for the same model, GPUs and batch."""
        found = list[Choice]()
        for some in self._grouped(lambda row: row.group):
            if len(some) >= FEWEST_PLANS:
                measured, said = (np.array(each) for each in zip(*(one.each_sample for one in some), strict=True))
                lost = measured[said.argmin()] / measured.min() - 1
                found.append(Choice(float(lost), float(spearmanr(measured, said).statistic)))
        return found

    def memory(self) -> Errors:
        """Of peaks."""
        return Errors.of(each.memory_error for each in self.compared if each.row.peak_bytes)

    def unfit(self) -> list[Row]:
        """Rows that ran and are said not to fit."""
        return [each.row for each in self.compared if not each.said.fits]

    def _grouped(self, by: Callable[[Row], Hashable]) -> list[list[Compared]]:
        """Those that judge and that train, in groups of two or more; ratios count where only these are meaningful."""
        found: dict[Hashable, list[Compared]] = defaultdict(list)
        for each in self.compared:
            if each.row.seconds and each.row.phase != "forward" and each.row.judges:
                found[by(each.row)].append(each)
        return [some for some in found.values() if len(some) > 1]


@dataclass(frozen=True)
class Asked:
    """What was asked of all rows."""

    rows: Sequence[Row]
    done: Sequence[Compared]  # of one variant, refused ones among them

    @property
    def unsaid(self) -> Counter[str]:
        """By reason, how many rows cannot be asked for, or were refused."""
        reasons = Counter(reason for row in self.rows if (reason := why_not(row)))
        reasons.update(_in_short(each.said.refused) for each in self.done if each.said.refused)
        return reasons

    @property
    def said(self) -> int:
        """How many rows can be said: there is no reason not to, and none was refused."""
        return len(self.rows) - self.unsaid.total()

    @property
    def predicted(self) -> int:
        """Of how many there is a prediction."""
        return sum(not each.said.refused for each in self.done)

    def larger(self, blocks: int) -> int:
        """How many rows that can be said run more blocks in a step."""
        return sum(row.blocks > blocks for row in self.rows if not why_not(row))


def all_reduce_table(
    said: Iterable[tuple[AllReduce, Prediction]], sizes: Sequence[float]
) -> tuple[tuple[str, ...], ...]:
    """Rows of a table: of each kind and number of GPUs, predicted over measured seconds by bytes."""
    found: dict[tuple[str, int], dict[float, float]] = defaultdict(dict)
    for each, prediction in said:
        found[each.gpu, each.gpus][each.bytes] = prediction.seconds / each.seconds
    return tuple(
        (f"{gpus} x {gpu}", *(f"{ratios[size]:.2f}" if size in ratios else "-" for size in sizes))
        for (gpu, gpus), ratios in sorted(found.items())
    )


def percent(share: float) -> str:
    """With a digit after the point."""
    return f"{100 * share:.1f}%"


def _family(row: Row) -> Hashable:
    return row.source, row.model, row.layers, row.hidden, row.sequence, row.gpu, row.precision, row.use, row.phase


def _plainness(row: Row) -> tuple[float, ...]:
    return row.gpus, row.pp, row.tp, -row.global_batch


def _in_short(refused: str) -> str:
    """The kind of refusal, without what is different for each row."""
    return "refused: " + re.sub(r"'[^']*'", "...", refused).partition(";")[0]


def step_errors_of(found: Iterable[VariantFindings]) -> StepErrors:
    """Of steps of one GPU at measured shares and run as their frameworks do: by GPU, and by another one's shares."""
    by_gpu: dict[str, StepError] = {}
    by_another = dict[str, StepError]()
    for each in found:
        alone = VariantFindings(each.variant, [one for one in each.timed if one.row.gpus == 1])
        if each.variant.by_another and alone.timed:
            by_another[MEASURED["cost_model"]] = _step_error(Errors.of(one.error for one in alone.timed))
        elif each.variant.place == MEASURED:
            by_gpu = {gpu: _step_error(of) for gpu, of in alone.errors(lambda row: GPUS[row.gpu]).items()}
    return StepErrors({MEASURED["cost_model"]: by_gpu} if by_gpu else {}, by_another)


def _step_error(of: Errors) -> StepError:
    return StepError(len(of.values), round(of.size, 3), round(max(map(abs, of.values)), 3))
