"""What plans are worth by each objective: a step, samples per second and a forward pass rank them differently."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Column, Table
from rich.text import Text

from evaluation.records import formatting
from evaluation.records.statistics import Estimate

ALONE = "its ratio to the same on one device alone, the fastest that holds all of it."
LATENCY = f"Latency: of the forward pass of a micro-batch, whose samples are in the next column; over alone: {ALONE}"
MEAN_LATENCY = f"Latency over alone: of the forward pass of a micro-batch, {ALONE}"


@dataclass(frozen=True)
class Worth:
    """What a plan of one placer for one problem is worth."""

    placer: str
    fits: bool
    step_seconds: float
    samples: float  # of a step; 0 if not known
    latency_seconds: float  # of the forward pass of a micro-batch
    micro_batch_samples: float  # of that; 0 if not known
    over_alone: float  # ratio to the same on one device alone; NaN if none holds it

    @property
    def samples_per_second(self) -> float:
        """NaN if it is not known how many samples a step has, or it takes no time."""
        return self.samples / self.step_seconds if self.samples and self.step_seconds else np.nan


@dataclass(frozen=True)
class MeanWorth:
    """The same over several problems, as ratios."""

    placer: str
    over_best: Estimate  # of the objective of the comparison
    latency_over_alone: Estimate


def objectives_table(plans: Sequence[Worth]) -> Table:
    """A row per plan; the best of each objective that fits in bold."""
    heads = formatting.numbers("step", "samples/s", "latency", "of samples", "over alone")
    found = formatting.table("By each objective", "placer", *heads, caption=f"{LATENCY} Bold: best that fits.")
    best = {  # of different numbers of samples, only ratios to one device alone can be compared
        key: min((getattr(plan, key) for plan in plans if plan.fits and not np.isnan(getattr(plan, key))), default=0.0)
        for key in ("step_seconds", "over_alone")
    }
    for plan in plans:
        fastest, soonest = ("bold" if plan.fits and getattr(plan, key) == least else "" for key, least in best.items())
        rate, parts = plan.samples_per_second, plan.micro_batch_samples
        found.add_row(
            plan.placer if plan.fits else Text(f"({plan.placer})", "dim"),
            Text(formatting.seconds(plan.step_seconds), fastest),
            Text(formatting.NOTHING if np.isnan(rate) else f"{rate:,.1f}", fastest),
            formatting.seconds(plan.latency_seconds),
            f"{parts:g}" if parts else formatting.NOTHING,
            Text(formatting.ratio(plan.over_alone), soonest),
        )
    return found


def mean_objectives_table(rows: Sequence[MeanWorth]) -> Table:
    """A row per placer over several problems."""
    heads = formatting.numbers("over best", "latency over alone")
    found = formatting.table("By each objective", Column("placer", overflow="fold"), *heads, caption=MEAN_LATENCY)
    for row in rows:
        found.add_row(row.placer, formatting.interval(row.over_best), formatting.interval(row.latency_over_alone))
    return found
