"""What rivals find on streams of changes, over what a search of seconds finds, and what they move for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from rich.table import Table

from envs.replacement.evaluator import ReplacementEvaluator
from evaluation.benchmark.stream_rivals import Rival, evaluator_in, reference, rivals
from evaluation.benchmark.streams import Change
from evaluation.records import formatting
from evaluation.records.statistics import estimate
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.op_graph import Ints
from graphs.problem import Problem

CLOSE = 1.02  # times the reference's objective
HEADS = ("rival", "over reference", f"within {CLOSE - 1:.0%}", "bytes moved", "ms, median", "ms, 95%")
IN_BENCHMARK = "streams.json"  # where a benchmark's folder has them
REMEDY = "`python -m evaluation.benchmark streams --out FILE` writes one"
WARM = 0.001  # seconds of each rival, once, so that code is compiled and the policy is read


class Results(msgspec.Struct, forbid_unknown_fields=True):
    """What one rival has found, change after change."""

    over_reference: list[float | None] = []  # of the objective; None if it does not fit
    moved_bytes: list[float] = []
    milliseconds: list[float] = []


class StreamResults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all rivals have found on some streams."""

    seed: int
    changes: int  # of each stream
    seconds: float  # of the rivals
    reference_seconds: float
    of_rivals: dict[str, Results]
    reference: Results

    @classmethod
    def none(cls, seed: int, changes: int, seconds: float, reference_seconds: float) -> StreamResults:
        """Of no stream yet."""
        return cls(seed, changes, seconds, reference_seconds, {name: Results() for name in rivals()}, Results())

    @classmethod
    def load(cls, path: Path) -> StreamResults:
        """As `save` wrote them. Raises InputError for another file."""
        try:
            return msgspec.json.decode(read_file(path, REMEDY), type=cls)
        except msgspec.DecodeError as error:
            raise InputError(f"{path} holds no results of streams: {error}; {REMEDY}") from error

    def save(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=0).decode() + "\n")

    def continued(self, path: Path) -> StreamResults:
        """Those in a file, if there are any: they are to be gone on with.

        Raises InputError for those of other streams, seconds or rivals.
        """
        if not path.exists():
            return self
        kept = StreamResults.load(path)
        asked, given = ((of.seed, of.changes, of.seconds, of.reference_seconds) for of in (self, kept))
        if asked != given or list(kept.of_rivals) != list(self.of_rivals):
            raise InputError(f"{path} holds results of another seed, other numbers or rivals; choose another --out")
        return kept

    @property
    def streams(self) -> int:
        """How many are done."""
        return len(self.reference.moved_bytes) // self.changes

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
        results.over_reference.append(outcome.step_seconds / over if outcome.fits else None)
        results.moved_bytes.append(float(evaluator.moves(placement[None])[1][0]))
        results.milliseconds.append(milliseconds)
        return outcome.step_seconds

    def table(self) -> Table:
        """A row per rival, for the terminal."""
        found = formatting.table(self._title, HEADS[0], *formatting.numbers(*HEADS[1:]), caption=self._caption)
        for row in self._rows():
            found.add_row(*row)
        return found

    def text(self) -> str:
        """The same in Markdown."""
        flags = f"--seed {self.seed} --count {self.streams} --changes {self.changes}"
        table = "".join(f"| {' | '.join(line)} |\n" for line in (HEADS, ("---",) * len(HEADS), *self._rows()))
        return (
            f"{self._title}, in streams that follow from a seed: `python -m evaluation.benchmark streams {flags}` "
            "makes this table. What runs, what changes and the rivals are "
            f"[here](replacement.md#answers-in-milliseconds). {self._caption}\n\n{table}"
        )

    @property
    def _title(self) -> str:
        return f"{len(self.reference.moved_bytes)} changes, {1e3 * self.seconds:g} ms"

    @property
    def _caption(self) -> str:
        return (
            f"Reference: annealing for {self.reference_seconds:g} s. Its objective, and the bytes that it moves in "
            "all, are 1. Ratios are geometric means, of five or more with 95% intervals, over plans that fit."
        )

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for name, results in self.of_rivals.items():
            ratios = np.array([np.inf if each is None else each for each in results.over_reference])
            fits = np.isfinite(ratios)
            moved = sum(results.moved_bytes) / max(sum(self.reference.moved_bytes), 1e-12)
            yield (
                name if fits.all() else f"{name} ({(~fits).sum()} do not fit)",
                formatting.interval(estimate([ratios[fits]]), digits=3),
                f"{(ratios <= CLOSE).sum()}",
                f"{moved:.2f}",
                *(f"{np.percentile(results.milliseconds, share):.0f}" for share in (50, 95)),
            )
