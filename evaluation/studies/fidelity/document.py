"""The document of the study of fidelity: how far predictions are from what is measured, and whether they rank plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from envs.costs.busy_machine import quiet_seconds
from evaluation.drawing.figures import BLUE, ORANGE
from evaluation.studies.document import save_document
from evaluation.studies.fidelity.measure import FORMS, FidelityPlan, MeasuredModel
from evaluation.studies.fidelity.tuning import RUNS, SIMULATIONS, Tuned
from graphs.op_graph import Floats

LEAST_SPEARMAN, MOST_ERROR, MOST_REGRET = 0.85, 0.10, 0.05  # what a user may rely on


@dataclass(frozen=True)
class Agreement:
    """How the predictions for some plans agree with what was measured."""

    spearman: float
    error: float  # median of |predicted / measured - 1|
    bias: float  # median of predicted / measured - 1
    regret: float  # how much longer the best predicted plan took than the best measured one, as a share

    @classmethod
    def of(cls, predicted: Floats, measured: Floats) -> Agreement:
        """From seconds of (plans,)."""
        ratio = predicted / measured - 1
        rank = float(stats.spearmanr(predicted, measured).statistic) if len(predicted) > 1 else np.nan
        regret = float(measured[predicted.argmin()] / measured.min() - 1)
        return cls(rank, float(np.median(np.abs(ratio))), float(np.median(ratio)), regret)

    @property
    def holds(self) -> bool:
        """Whether a user may rely on it."""
        return self.spearman >= LEAST_SPEARMAN and self.error <= MOST_ERROR and self.regret <= MOST_REGRET


@dataclass(frozen=True)
class FidelityFindings:
    """What is measured of a study."""

    models: Sequence[MeasuredModel]
    tuned: Sequence[Tuned] = ()

    def agreement(self, model: MeasuredModel, form: str) -> Agreement:
        """Of all plans of a model, predicted in one of the `FORMS`."""
        return Agreement.of(np.array([plan.predicted[form] for plan in model.plans]), _measured(model))

    def repeatable(self, model: MeasuredModel) -> float:
        """How well two halves of the rounds rank the plans alike (Spearman): no prediction can do better."""
        rounds = np.array([plan.measured for plan in model.plans])
        first, second = ([quiet_seconds(plan) for plan in half] for half in np.array_split(rounds, 2, axis=1))
        return float(stats.spearmanr(np.array(first), np.array(second)).statistic)

    def by_kind(self, form: str) -> dict[str, tuple[int, float, float]]:
        """Of each kind of plan how many there are, and the median error and bias of their predictions."""
        found: dict[str, list[float]] = {}
        for model in self.models:
            for plan, seconds in zip(model.plans, _measured(model), strict=True):
                found.setdefault(plan.kind, []).append(plan.predicted[form] / seconds - 1)
        return {
            kind: (len(ratios), float(np.median(np.abs(ratios))), float(np.median(ratios)))
            for kind, ratios in found.items()
        }

    @staticmethod
    def milliseconds(plan: FidelityPlan) -> list[str]:
        """A plan's predictions, in the order of the `FORMS`."""
        return [f"{1e3 * plan.predicted[form]:.1f}" for form in FORMS]

    def failing(self, form: str) -> list[MeasuredModel]:
        """The models on which a user may not rely on the predictions."""
        return [model for model in self.models if not self.agreement(model, form).holds]

    def worst(self, model: MeasuredModel, form: str) -> tuple[str, float]:
        """The plan whose prediction is farthest off, and its predicted seconds over the measured ones, less 1."""
        ratios = np.array([plan.predicted[form] for plan in model.plans]) / _measured(model) - 1
        index = int(np.abs(ratios).argmax())
        return model.plans[index].name, float(ratios[index])


def save(found: FidelityFindings, folder: Path, command: str) -> Path:
    """Write `fidelity.md` and its figure into a folder."""
    return save_document(
        "fidelity", "fidelity.md", folder, {"fidelity.png": (partial(_scatter, found=found), 6.4)}, command=command,
        found=found, forms=FORMS, last=list(FORMS)[-1], least_spearman=LEAST_SPEARMAN, most_error=MOST_ERROR,
        most_regret=MOST_REGRET, simulations=SIMULATIONS, runs=RUNS,
        quiet=lambda seconds: quiet_seconds(np.array(seconds)),
    )  # fmt: skip


def _measured(model: MeasuredModel) -> Floats:
    """(plans,) seconds of a step: of the quietest."""
    return np.array([quiet_seconds(np.array(plan.measured)) for plan in model.plans])


def _scatter(figure: Figure, found: FidelityFindings) -> None:
    """For each model, predicted against measured milliseconds, before and after calibration."""
    rows = -(-len(found.models) // 3)
    panels = np.ravel(figure.subplots(rows, 3, squeeze=False))
    for axes, model in zip(panels, found.models, strict=False):
        measured = 1e3 * _measured(model)
        for form, colour in zip(FORMS, (ORANGE, BLUE), strict=True):
            predicted = [1e3 * plan.predicted[form] for plan in model.plans]
            axes.scatter(measured, predicted, s=12, color=colour, label=FORMS[form])
        ends = [0.9 * measured.min(), 1.1 * measured.max()]
        axes.plot(ends, ends, color="grey", linewidth=0.8)
        axes.set_title(model.model, fontsize=9)
        axes.grid()
    for axes in panels[len(found.models) :]:
        axes.set_visible(False)
    panels[0].legend(fontsize=6)
    figure.supxlabel("measured, milliseconds")
    figure.supylabel("predicted, milliseconds")
