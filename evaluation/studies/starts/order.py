"""What follows from the measurements: the order of the starts, and the estimates of their seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import lsq_linear

from evaluation.statistics import geometric_mean
from evaluation.studies.starts.measure import LOADS, SUITE, Measured
from graphs.op_graph import Bools, Floats
from placers.search.starts import Estimate

UNFIT = 10.0  # a plan that does not fit counts as one that takes ten times as long as the best
LEAST_GAIN = 0.0005  # in the time of 1,000 simulations: a placer that gains less in as much time is no start
FIRST = 1000  # simulations that the first start may cost; it is taken whatever the budget
AMOUNTS = ("seeds=", "ideals=")  # knobs that say how long a placer tries
SHORTEST = 1e-6  # seconds; the clock shows no less


@dataclass(frozen=True)
class ChosenStart:
    """A placer in the order, after all before it."""

    placer: str
    gain: float  # by how much it lowers the mean logarithm of the best start's seconds
    after: float  # geometric mean of the best start's seconds over the best of all candidates', with it


@dataclass(frozen=True)
class Order:
    """All measurements; only problems that are not of the suite decide about the order."""

    pieces: Sequence[Measured]

    @cached_property
    def placers(self) -> list[str]:
        """The candidates."""
        return [trial.placer for trial in self.pieces[0].trials]

    @cached_property
    def seconds(self) -> Floats:
        """(problems, placers) of the processor."""
        return np.array([[max(trial.cpu_seconds, SHORTEST) for trial in piece.trials] for piece in self.pieces])

    @cached_property
    def simulations(self) -> Floats:
        """(problems, placers) how many simulations take as long as a placer."""
        found: Floats = self.seconds / np.array([[piece.simulation_seconds] for piece in self.pieces])
        return found

    @cached_property
    def ratios(self) -> Floats:
        """(problems, placers) over the best of all candidates; infinite for what does not fit."""
        found = [[trial.seconds if trial.fits else np.inf for trial in piece.trials] for piece in self.pieces]
        values = np.array(found)
        ratios: Floats = values / values.min(axis=1, keepdims=True)
        return ratios

    @cached_property
    def deciding(self) -> Bools:
        """(problems,) whether each counts for the order."""
        return np.array([piece.kind != SUITE for piece in self.pieces])

    @cached_property
    def cost(self) -> Floats:
        """(placers,) geometric mean of `simulations`, where these are of step times."""
        timed = np.array([piece.kind != LOADS for piece in self.pieces])
        return geometric_mean(self.simulations[self.deciding & timed].T)

    @cached_property
    def losses(self) -> Floats:
        """(deciding problems, placers) logarithms of the ratios."""
        return np.log(np.minimum(self.ratios[self.deciding], UNFIT))

    @cached_property
    def starts(self) -> list[ChosenStart]:
        """Starts in their order: each gains most per second after those before it; the first is the best of its own.

        Of the variants of a placer that differ only in how long they try, one is a start.
        """
        alone = np.where(self.cost <= FIRST, self.losses.mean(axis=0), np.inf)
        best = self.placers[int(alone.argmin())]
        starts = [ChosenStart(best, np.nan, float(np.exp(alone.min())))]
        while True:
            chosen = [start.placer for start in starts]
            there = {variant(spec) for spec in chosen}
            gains = {spec: self.gain(spec, chosen) for spec in self.placers if variant(spec) not in there}
            rates = {spec: 1000 * gain / self.cost_of(spec) for spec, gain in gains.items()}
            best = max(rates, key=rates.__getitem__, default="")
            if rates.get(best, 0.0) < LEAST_GAIN:
                return starts
            starts.append(ChosenStart(best, gains[best], starts[-1].after * float(np.exp(-gains[best]))))

    def gain(self, placer: str, others: Sequence[str]) -> float:
        """By how much a placer lowers the mean logarithm of the least seconds that others find."""
        so_far = self.losses[:, [self.placers.index(spec) for spec in others]].min(axis=1)
        return float(np.maximum(so_far - self.losses[:, self.placers.index(placer)], 0.0).mean())

    def cost_of(self, placer: str) -> float:
        """Its `cost`."""
        return float(self.cost[self.placers.index(placer)])

    def estimate(self, placer: str | None) -> tuple[Estimate, float]:
        """The law of a placer's seconds, or of a simulation's; and by what factor it misses, typically.

        The least squares of the logarithms, with exponents that are not negative.
        """
        pieces = [piece for piece in self.pieces if placer is not None or piece.kind != LOADS]
        if placer is None:
            seconds = np.array([piece.simulation_seconds for piece in pieces])
        else:
            seconds = self.seconds[:, self.placers.index(placer)]
        sizes = np.log([[piece.ops, piece.units, piece.devices] for piece in pieces])
        columns = np.concatenate([np.ones((len(sizes), 1)), sizes], axis=1)
        law = lsq_linear(columns, np.log(seconds), bounds=([-np.inf, 0, 0, 0], np.inf)).x
        missed = float(np.exp(np.sqrt(np.mean((columns @ law - np.log(seconds)) ** 2))))
        return Estimate(*_rounded(float(np.exp(law[0])), *law[1:].tolist())), missed


def variant(spec: str) -> str:
    """A placer's spec without the knobs that say how long it tries."""
    name, _, knobs = spec.partition(":")
    return ":".join([name, *(knob for knob in knobs.split(",") if knob and not knob.startswith(AMOUNTS))])


def _rounded(scale: float, *exponents: float) -> tuple[float, ...]:
    return float(f"{scale:.2g}"), *(round(exponent, 2) for exponent in exponents)
