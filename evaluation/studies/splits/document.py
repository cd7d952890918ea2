"""The document of the study of splits: who is fastest on each model, and what devices hold of one that fits on none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.document import save_document
from evaluation.studies.splits.measure import OURS, RIVALS, Measured, Placed

EXPERTS = ("data_parallel", "tensor_parallel")
EQUAL = 1e-9  # relative: the same plan


@dataclass(frozen=True)
class SplitFindings:
    """What is measured of a study."""

    models: Sequence[Measured]

    def of(self, model: Measured, placer: str) -> Placed:
        """A placer's plan."""
        return next(each for each in model.plans if each.placer == placer)

    def rank(self, placed: Placed) -> tuple[bool, float]:
        """The smaller, the better: what fits, and then the faster."""
        return not placed.fits, placed.seconds

    def best_expert(self, model: Measured) -> Placed:
        """The better one of data and tensor parallelism."""
        return min((self.of(model, placer) for placer in EXPERTS), key=self.rank)

    def behind(self) -> list[Measured]:
        """Where one of these is faster than ours."""
        return [
            model for model in self.models
            if (expert := self.best_expert(model)).fits
            and not (self.of(model, OURS).fits and self.of(model, OURS).seconds <= expert.seconds * (1 + EQUAL))
        ]  # fmt: skip

    def gain(self, model: Measured) -> float:
        """By which share our step is shorter than that of the better expert."""
        return 1 - self.of(model, OURS).seconds / self.best_expert(model).seconds

    def cell(self, model: Measured, placer: str) -> str:
        """Milliseconds of a step, or that it does not fit."""
        placed = self.of(model, placer)
        return f"{1e3 * placed.seconds:.2f}" if placed.fits else "does not fit"

    def share(self, model: Measured, placed: Placed) -> float:
        """What the fullest device holds but for buffers, as a share of what one device alone would."""
        return (placed.held.peak - placed.held.buffers) / model.alone.peak


def save(found: SplitFindings, folder: Path, command: str) -> Path:
    """Write `splits.md` into a folder."""
    large = [model for model in found.models if not model.fits_alone]
    return save_document(
        "splits", "splits.md", folder, {}, command=command, found=found, placers=(*RIVALS, OURS), ours=OURS,
        large=large, budget=found.models[0].budget, cluster=found.models[0].cluster,
    )  # fmt: skip
