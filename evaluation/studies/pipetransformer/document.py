"""The document of the study of PipeTransformer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from envs.pipelines.pipeline import ONE_F_ONE_B
from evaluation.drawing.figures import BLUE, GREEN, ORANGE, PURPLE
from evaluation.studies.document import save_document
from evaluation.studies.pipetransformer import published
from evaluation.studies.pipetransformer.fit import SAMPLES, Fit
from evaluation.studies.pipetransformer.published import ALL, ALPHA, FREEZE, NO_CACHE, NO_REPLICAS, VARIANTS
from evaluation.studies.pipetransformer.training import BERT, COST_MODEL, SPENT, VIT, Epochs, Machine, Training
from placers.elastic.intervals import Interval, Parts, intervals

PARTS = {
    FREEZE: Parts(pipe=False, replicas=False, cache=False),
    NO_REPLICAS: Parts(replicas=False),
    NO_CACHE: Parts(cache=False),
    ALL: Parts(),
}
DATA = {"ImageNet": 1_281_167, "CIFAR-100": 50_000}  # images in an epoch
DATA_SHEET, FITTED, CONSTANT = "data sheet", "fitted", "fitted, constant launches"
BY_TIME = "by time"
COLOURS = {FREEZE: ORANGE, NO_REPLICAS: PURPLE, NO_CACHE: BLUE, ALL: GREEN}


@dataclass(frozen=True)
class Findings:
    """What the study says."""

    fit: Fit
    trainings: Mapping[str, Training]
    """Of ViT, by machine."""
    bert: Training
    """On the fitted machine."""
    otherwise: Mapping[str, Training]
    """Of ViT on the fitted machine, with other stages, and another order of passes."""

    @classmethod
    def of(cls, fit: Fit) -> Findings:
        """Nothing is simulated yet."""
        constant = replace(fit.machine, launch_seconds=fit.machine.launch_seconds * published.FIRST, one_by_one=False)
        machines = {DATA_SHEET: Machine(), FITTED: fit.machine, CONSTANT: constant}
        trainings = {name: Training(VIT, machine) for name, machine in machines.items()}
        by_time = Training(VIT, fit.machine, "time")
        otherwise = {BY_TIME: by_time, f"{BY_TIME}, 1F1B": replace(by_time, order=ONE_F_ONE_B, steps={})}
        return cls(fit, trainings, Training(BERT, fit.machine), otherwise)

    @property
    def vit(self) -> Training:
        """ViT on the fitted machine."""
        return self.trainings[FITTED]

    def runs(self) -> dict[str, Epochs]:
        """Ten epochs of ViT on the fitted machine, without freezing and with it."""
        return {"no layer freezes": self.vit.epochs()} | {name: self.vit.epochs(parts=PARTS[name]) for name in VARIANTS}

    def otherwise_speedups(self, variant: str = "") -> list[float]:
        """Of a variant, or without freezing, over training without freezing that has PipeTransformer's stages."""
        whole, parts = self.vit.epochs().sample_seconds, PARTS.get(variant)
        return [whole / training.epochs(parts=parts).sample_seconds for training in self.otherwise.values()]

    def speedups(self, variant: str) -> list[float]:
        """On each machine and, with changes between plans, on each data set."""
        parts = PARTS[variant]
        without = [training.speedup(parts=parts) for training in self.trainings.values()]
        return without + [self.vit.speedup(parts=parts, data=count) for count in DATA.values()]

    def in_order(self) -> list[str]:
        """The machines on which variants come in the published order, and freezing alone is no faster than none."""
        found = []
        for name, training in self.trainings.items():
            alone, *others = (training.speedup(parts=PARTS[variant]) for variant in VARIANTS)
            if alone <= 1 < others[0] < others[1] < others[2]:
                found.append(name)
        return found

    def milliseconds(self, epochs: Epochs) -> list[str]:
        """Of a GPU for each image, over all epochs, by what they are spent on."""
        return [f"{1e3 * epochs.spent(share):.3g}" for share in SPENT]

    def totals(self, epochs: Epochs) -> list[str]:
        """What all epochs and changes take on each data set."""
        return [duration(epochs.seconds(count)) for count in DATA.values()]

    def intervals(self, training: Training, alpha: float = ALPHA) -> tuple[Interval, ...]:
        """The sequence of plans with all parts."""
        return intervals(training.epochs(alpha, Parts()).setups)


def save(found: Findings, folder: Path, command: str) -> Path:
    """Write `pipetransformer.md` and its figure into a folder."""
    return save_document(
        "pipetransformer", "pipetransformer.md", folder,
        {"pipetransformer.png": (partial(_panel, found=found), 3.2)},
        command=command, found=found, published=published, variants=VARIANTS, parts=PARTS, data=DATA, spent=SPENT,
        cost_model=COST_MODEL, fit_samples=SAMPLES, all=ALL, freeze=FREEZE,
        no_cache=NO_CACHE, no_replicas=NO_REPLICAS, fitted=FITTED, constant=CONSTANT, data_sheet=DATA_SHEET,
        machine=found.fit.machine, bert=found.bert, formatted=formatted, duration=duration,
    )  # fmt: skip


def duration(seconds: float) -> str:
    """Hours or, below one, minutes."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def formatted(values: Iterable[float], how: str) -> list[str]:
    """Each number as text."""
    return [format(value, how) for value in values]


def _panel(figure: Figure, found: Findings) -> None:
    """Milliseconds per image by epoch, a line for each variant."""
    axes = figure.subplots()
    whole = found.vit.epochs()
    lines = {"no layer freezes": ("0.4", whole)} | {each: (COLOURS[each], found.runs()[each]) for each in VARIANTS}
    for name, (colour, epochs) in lines.items():
        up = [1e3 * step.sample_seconds for step in epochs.steps]
        axes.plot(range(len(up)), up, color=colour, marker="o", markersize=4, linewidth=1.4, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("epoch")
    axes.set_ylabel("milliseconds per image")
    axes.grid()
    axes.legend(fontsize=8)
