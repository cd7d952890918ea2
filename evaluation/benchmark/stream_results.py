"""What rivals find on streams of changes, over what a search of seconds finds, and what they move for it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from rich.table import Table

from envs.replacement.evaluator import ReplacementEvaluator
from evaluation.benchmark.stream_rivals import Rival, evaluator_in, reference, rivals
from evaluation.benchmark.streams import Change
from evaluation.records import formatting
from evaluation.records.statistics import estimate
from graphs.op_graph import Ints
from graphs.problem import Problem

CLOSE = 1.02  # times the reference's objective
WARM = 0.001  # seconds of each rival, once, so that code is compiled and the policy is read


@dataclass
class Results:
    """What one rival has found, change after change."""

    over_reference: list[float] = field(default_factory=list)  # of the objective; infinite if it does not fit
    moved_bytes: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class StreamResults:
    """What all rivals have found on some streams."""

    seconds: float  # of the rivals
    reference_seconds: float
    of_rivals: Mapping[str, Results]
    reference: Results

    @classmethod
    def none(cls, seconds: float, reference_seconds: float) -> StreamResults:
        """Of no change yet."""
        return cls(seconds, reference_seconds, {name: Results() for name in rivals()}, Results())

    def add(self, change: Change) -> None:
        """Let all rivals answer a change."""
        problem, evaluator = change.problem, evaluator_in(change.problem)
        if not self.reference.moved_bytes:
            for rival in rivals().values():
                rival(problem, WARM)
        best, _ = self._measured(reference, problem, self.reference_seconds)
        objective = self._note(self.reference, evaluator, best, 0.0, 1.0)
        for name, rival in rivals().items():
            found, milliseconds = self._measured(rival, problem, self.seconds)
            self._note(self.of_rivals[name], evaluator, found, milliseconds, objective)

    @staticmethod
    def _measured(rival: Rival, problem: Problem, seconds: float) -> tuple[Ints, float]:
        """What a rival answers, and its milliseconds."""
        started = time.process_time()
        found = rival(problem, seconds)
        return found, 1e3 * (time.process_time() - started)

    @staticmethod
    def _note(
        results: Results, evaluator: ReplacementEvaluator, placement: Ints, milliseconds: float, over: float
    ) -> float:
        """Note what a placement, (units,), is worth over a reference; returns its objective."""
        outcome = evaluator.run_batch(placement[None]).of(0)
        results.over_reference.append(outcome.step_seconds / over if outcome.fits else np.inf)
        results.moved_bytes.append(float(evaluator.moves(placement[None])[1][0]))
        results.milliseconds.append(milliseconds)
        return outcome.step_seconds

    def table(self) -> Table:
        """A row per rival."""
        heads = formatting.numbers("over reference", f"within {CLOSE - 1:.0%}", "bytes moved", "ms, p50", "p95")
        changes = len(self.reference.moved_bytes)
        found = formatting.table(
            f"{changes} changes, {1e3 * self.seconds:g} ms", "rival", *heads,
            caption=f"Reference: annealing for {self.reference_seconds:g} s. Its objective, and the bytes that it "
            "moves in all, are 1. Ratios are geometric means, of five or more with 95% intervals, over plans that fit.",
        )  # fmt: skip
        for name, results in self.of_rivals.items():
            ratios = np.array(results.over_reference)
            fits = np.isfinite(ratios)
            moved = sum(results.moved_bytes) / max(sum(self.reference.moved_bytes), 1e-12)
            found.add_row(
                name if fits.all() else f"{name} ({(~fits).sum()} do not fit)",
                formatting.interval(estimate([ratios[fits]]), digits=3),
                f"{(ratios <= CLOSE).sum()}",
                f"{moved:.2f}",
                *(f"{np.percentile(results.milliseconds, share):.0f}" for share in (50, 95)),
            )
        return found
