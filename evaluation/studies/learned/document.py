"""The document of the study of the learned placers, and its plot: what more simulations buy."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.comparing.comparison import FINETUNED, short_name
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED
from evaluation.records.record import Record
from evaluation.records.statistics import geometric_mean
from evaluation.studies.document import Plot, across_simulations, save_document
from evaluation.studies.learned.claims import CLAIMS, COLOCRL, GDP, HDP, PLACETO
from evaluation.studies.learned.suite import EXPERT, SuiteFindings
from evaluation.studies.simulated import way_of_running
from graphs.files.suites import SUITES
from graphs.op_graph import Floats

ALONE = ("default", "annealing")  # in addition to the fine-tuned ones, problem by problem
DRAWN = {
    GDP: (BLUE, "-"), HDP: (PURPLE, "-"), COLOCRL: (RED, "-"), PLACETO: (ORANGE, "-"),
    f"default{FINETUNED}": (GREEN, "-"), "annealing:policy=default": (GREEN, "--"), "annealing": (GREY, "-"),
    "hill_climbing": (GREY, "--"),
}  # fmt: skip
POINTS = 300  # of a curve
HIGHEST = 2.5  # ratio in the plot; what is slower leaves it


def save(
    suites: Sequence[SuiteFindings], folder: Path, command: str, *, budget: int, groups: int, suffix: str = ""
) -> Path:
    """Write `learned.md` into a folder, and the plot of the curves if anything that is drawn is done.

    The `suffix` is in the names of both.
    """
    plot = f"learned{suffix}_curves.png"
    drawable = [suite for suite in suites if any(suite.progress(placer, np.ones(1))[1] for placer in DRAWN)]
    plots: dict[str, Plot] = {plot: (partial(_draw_curves, suites=drawable, budget=budget), 5.2)} if drawable else {}
    return save_document(
        "learned", f"learned{suffix}.md", folder, plots,
        command=command, suites=suites, budget=budget, groups=groups,
        seeds=max(suite.seeds for suite in suites),
        about={suite.name: (inspect.getdoc(SUITES[suite.name]) or "").partition("\n")[0] for suite in suites},
        claims=[(claim, suite) for claim in CLAIMS for suite in suites if suite.name == claim.suite],
        plot=plot if drawable else "", expert=EXPERT, alone=_alone, median=np.median, mean_seconds=_mean_seconds,
        short_name=short_name, way=way_of_running(each for suite in suites for each in suite.done.values()),
    )  # fmt: skip


def _alone(suite: SuiteFindings) -> dict[str, str]:
    """The placers of the table by problem, and their short names."""
    return {placer: short_name(placer) for placer in suite.placers if placer.endswith(FINETUNED) or placer in ALONE}


def _mean_seconds(records: Sequence[Record]) -> float:
    """Geometric mean of the step times."""
    return float(geometric_mean(np.array([record.step_seconds for record in records])))


def _draw_curves(figure: Figure, suites: Sequence[SuiteFindings], budget: int) -> None:
    """A panel per suite, each with its legend, as its problems are others."""
    across = figure.subplots(1, len(suites), sharey=True, squeeze=False)[0]
    points = np.unique(np.geomspace(1, max(budget, 2), POINTS).round())
    for axes, suite in zip(across, suites, strict=True):
        for placer in DRAWN:
            _draw(axes, suite, placer, points)
        axes.axhline(1.0, color=GREY, linewidth=0.7)
        across_simulations(axes, suite.name)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=7)
    across[0].set_ylim(top=min(HIGHEST, across[0].get_ylim()[1]))  # of all panels, once all is drawn
    across[0].set_ylabel("step time / human expert's")


def _draw(axes: Axes, suite: SuiteFindings, placer: str, points: Floats) -> None:
    """The mean over seeds, and the band between the best and the worst of them."""
    ratios, problems = suite.progress(placer, points)
    if not problems:
        return
    colour, style = DRAWN[placer]
    label = f"{placer} ({problems} of {len(suite.problems)})"
    axes.step(points, geometric_mean(ratios.T), where="post", color=colour, linestyle=style, label=label)
    low, high = ratios.min(axis=0), ratios.max(axis=0)
    axes.fill_between(points, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
