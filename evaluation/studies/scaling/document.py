"""The document of the study of scaling: parts of an update, the model and its check, and the speed-ups that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from evaluation.drawing.figures import BLUE, GREEN, ORANGE
from evaluation.studies.document import save_document
from evaluation.studies.scaling import model
from evaluation.studies.scaling.clock import PARTS
from evaluation.studies.scaling.measure import COUNTS, PHASES, RECIPE, Measured, Split, Timed
from graphs.foundation.errors import InputError

NUMBERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
MORE = COUNTS[-1]  # workers or ranks by which the model is checked
WORKERS, RANKS, SAME = "workers, larger updates", "ranks, larger updates", "workers, updates as they are"
COLOURS = {WORKERS: BLUE, RANKS: GREEN, SAME: ORANGE}


@dataclass(frozen=True)
class Check:
    """A speed-up that was predicted, and measured."""

    by: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """By which share the prediction is too high."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class ScalingFindings:
    """What is measured of one phase, and what follows."""

    phase: str
    split: Split
    timed: Sequence[Timed]

    def milliseconds(self, part: str) -> float:
        """Of an update, on average; what ranks tell each other is that of two on this machine."""
        if part == "communicate":
            return 1e3 * self._talk
        return 1e3 * sum(update.parts.get(part, 0.0) for update in self.split.updates) / len(self.split.updates)

    def shares(self) -> list[tuple[str, float, float]]:
        """Each part, its milliseconds, and its share of an update of two ranks without what they wait."""
        found = [(part, self.milliseconds(part)) for part in PARTS]
        whole = sum(each for _, each in found)
        return [(part, each, each / whole) for part, each in found]

    @property
    def _talk(self) -> float:
        return (self.split.epochs + model.GATHERS + model.REDUCES) * self._of("ranks", MORE).all_reduce

    @property
    def item(self) -> float:
        """Seconds that the learner needs to give out an item."""
        return self._of("workers", MORE).item

    def checks(self) -> list[Check]:
        """The speed-ups of two workers and of two ranks over one."""
        predicted = {
            "workers": model.same_by_workers(self.split, MORE, self.item),
            "ranks": model.same_by_ranks(self.split, MORE, self._of("ranks", MORE).all_reduce),
        }
        return [Check(by, each, self._of(by, 1).seconds / self._of(by, MORE).seconds) for by, each in predicted.items()]

    def curves(self) -> dict[str, list[float]]:
        """By what is shared how: the speed-up on each of NUMBERS."""
        return {
            WORKERS: [model.larger_by_workers(self.split, number, self.item) for number in NUMBERS],
            RANKS: [model.larger_by_ranks(self.split, number, model.ETHERNET) for number in NUMBERS],
            SAME: [model.same_by_workers(self.split, number, self.item) for number in NUMBERS],
        }

    @property
    def bottleneck(self) -> float:
        """The number of workers from which on the learner is busier than each of them."""
        return model.bottleneck(self.split, self.item)

    @property
    def most(self) -> float:
        """The speed-up that no number of workers exceeds."""
        return model.most(self.split, self.item)

    def _of(self, by: str, count: int) -> Timed:
        return next(each for each in self.timed if (each.by, each.count) == (by, count))


def findings(pieces: Sequence[Measured]) -> list[ScalingFindings]:
    """Those of each phase. Raises InputError if something is not measured yet."""
    found = []
    for phase in PHASES:
        splits = [each.split for each in pieces if each.split and each.split.phase == phase]
        timed = [each.timed for each in pieces if each.timed and each.timed.phase == phase]
        if not splits or len(timed) < 2 * len(COUNTS):
            raise InputError(f"{phase} is not measured yet; run the study without --write-only")
        found.append(ScalingFindings(phase, splits[0], timed))
    return found


def save(pieces: Sequence[Measured], folder: Path, command: str, processor: str) -> Path:
    """Write `scaling.md` and its figure into a folder."""
    found = findings(pieces)
    return save_document(
        "scaling", "scaling.md", folder, {"scaling.png": (partial(_panels, found=found), 3.4)},
        command=command, found=found, numbers=NUMBERS, network=model.ETHERNET.name, recipe=RECIPE, processor=processor,
        more=MORE, kinds=list(COLOURS),
    )  # fmt: skip


def _panels(figure: Figure, found: Sequence[ScalingFindings]) -> None:
    """A panel per phase: the predicted speed-up over the number of workers or ranks."""
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, found, strict=True):
        axes.plot(NUMBERS, NUMBERS, color="0.7", linewidth=1, linestyle=":", label="as many times as fast")
        for kind, speeds in each.curves().items():
            axes.plot(NUMBERS, speeds, color=COLOURS[kind], marker="o", markersize=3, linewidth=1.4, label=kind)
        if each.bottleneck > 1:
            axes.axvline(each.bottleneck, color=BLUE, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.set_minor_formatter(NullFormatter())
        axes.set_title(each.phase)
        axes.set_xlabel("workers or ranks")
        axes.grid()
    panels[0].set_ylabel("speed-up over one process")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
