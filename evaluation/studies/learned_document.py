"""The study of the learned placers as a document: its tables, its claims, its plot, and what is missing."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from evaluation import formatting
from evaluation.comparison import FINETUNED, short_name
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, drawn
from evaluation.statistics import geometric_mean
from evaluation.studies.learned_claims import CLAIMS, COLOCRL, GDP, HDP, PLACETO
from evaluation.studies.learned_results import EXPERT, Results
from evaluation.studies.markdown import estimated, table
from evaluation.studies.released_results import cluster_of, graph_of
from graphs.foundation.files import write_whole
from graphs.op_graph import Floats
from graphs.suites import SUITES

ALONE = ("default", "annealing")  # beside the fine-tuned ones, problem by problem
DRAWN = {
    GDP: (BLUE, "-"), HDP: (PURPLE, "-"), COLOCRL: (RED, "-"), PLACETO: (ORANGE, "-"),
    f"default{FINETUNED}": (GREEN, "-"), "annealing:policy=default": (GREEN, "--"), "annealing": (GREY, "-"),
    "hill_climbing": (GREY, "--"),
}  # fmt: skip
PLOT = "learned_curves.png"
POINTS = 300  # of a curve
HIGHEST = 2.5  # ratio in the plot; what is slower leaves it


def save_document(suites: Sequence[Results], folder: Path, command: str, *, budget: int, groups: int) -> Path:
    """Write `learned.md` into a folder, and the plot of the curves if anything that is drawn is done."""
    folder.mkdir(parents=True, exist_ok=True)
    drawable = [results for results in suites if any(results.progress(placer, np.ones(1))[1] for placer in DRAWN)]
    if drawable:

        def painted(figure: Figure) -> None:
            _draw_curves(figure, drawable, budget)

        write_whole(folder / PLOT, drawn(painted, 5.2, "png", dpi=90, facecolor="white"))
    path = folder / "learned.md"
    text = document(suites, command, budget=budget, groups=groups, plot=bool(drawable))
    write_whole(path, text)
    return path


def document(suites: Sequence[Results], command: str, *, budget: int, groups: int, plot: bool = False) -> str:
    """The study in Markdown."""
    seeds = max(results.seeds for results in suites)
    lines = [
        "# The learned placers: GDP, HDP, ColocRL and Placeto beside their rivals",
        "",
        f"`X{FINETUNED}` learns on each problem by itself, within the simulations that it is allowed: `gdp`, `hdp`,",
        "`colocrl` and `placeto` begin untrained, `default` as the released policy. `default` alone is the best of as",
        "many of that policy's placements as may be simulated, or as its name says; the others search or follow rules.",
        "",
        f"    {command}",
        "",
        f"Everyone may simulate {budget:,} placements of a problem; {seeds} seed{'s' * (seeds > 1)}; at most {groups} "
        "op groups a graph.",
        "On one problem all learn by PPO, with settings of their own; GDP, HDP and Placeto imitate the best placement",
        "that they know beside that. Placeto pays once for a placement that it comes back to, the others every time.",
        "Ratios are of step times, below 1 is faster: geometric means over the seeds and problems where both plans",
        "fit, with 95% intervals in [brackets], for which seeds and problems are drawn anew. Faster than the expert is",
        "who takes less time by more than a tenth of a per cent, in the mean over seeds, or fits where the expert does",
        "not; who does not fit with every seed is not. The best known is the study's fastest plan that fits.",
        "Simulations and seconds are medians of a plan; seconds are wall clock on a machine that was shared with other",
        "work, and tell no more than an order of magnitude.",
        "",
        "## Claims of the papers",
        "",
        *_claims(suites),
        "",
        *chain.from_iterable(_suite(results) for results in suites),
        *_curves(plot),
        "## What is missing",
        "",
        *_missing(suites),
        "",
    ]
    return "\n".join(lines)


def _claims(suites: Sequence[Results]) -> list[str]:
    by_name = {results.suite: results for results in suites}
    rows = []
    for claim in CLAIMS:
        if (results := by_name.get(claim.suite)) is not None:
            measured, verdict = claim.judged(results)
            so_far = "" if claim.is_complete(results) or verdict == "not measured" else " so far"
            rows.append([claim.suite, claim.asked, measured, verdict + so_far])
    return [
        *table(("suite", "asked for", "measured", "met?"), rows, words=4),
        "",
        "Simulations are counted until a placer has a plan that fits and is as fast as the rival's best of the same",
        "problem and seed, and those of the rival until it had that itself; a mean is over the pairs in which it came",
        "so far. Searches note each better plan when they simulate it, learned placers after the update that it is",
        'part of. "In part" is a mean that leaves out plans that do not fit, or pairs that came not so far.',
    ]


def _suite(results: Results) -> list[str]:
    """Everything about one suite."""
    about = (inspect.getdoc(SUITES[results.suite]) or "").partition("\n")[0]
    heads = ("graph", "cluster", "expert", *(short_name(placer) for placer in _alone(results)))
    return [
        f"## {results.suite}",
        "",
        about,
        "",
        *_standings(results),
        "",
        "Step time over the expert's by problem, mean over the seeds whose plans fit; where the expert does not fit,",
        "the step time itself:",
        "",
        *table(heads, [_problem(results, problem) for problem in results.problems], words=2),
        "",
    ]


def _standings(results: Results) -> list[str]:
    """A row per placer that has placed anything."""
    rows = []
    for placer in results.placers:
        if records := results.of(placer):
            cells = [
                estimated(results.over(placer)),
                f"{results.wins(placer, EXPERT)} of {len(results.both(placer, EXPERT))}",
                estimated(results.over_best(placer)),
                f"{results.unfit(placer).sum()} of {len(records)}",
                f"{np.median([record.simulations for record in records]):,.0f}",
                f"{np.median([record.search_seconds for record in records]):,.1f}",
            ]
            rows.append([short_name(placer), *cells])
    heads = ("", "over the expert", "faster than it", "over the best known", "does not fit", "simulations", "seconds")
    return table(heads, rows)


def _alone(results: Results) -> list[str]:
    return [placer for placer in results.placers if placer.endswith(FINETUNED) or placer in ALONE]


def _problem(results: Results, problem: str) -> list[str]:
    """A row of the table by problem."""
    expert = results.means(EXPERT).get(problem, math.nan)
    said = "does not fit" if math.isinf(expert) else formatting.seconds(expert)
    cells = (_cell(results, placer, problem, expert) for placer in _alone(results))
    return [graph_of(problem), cluster_of(problem), said, *cells]


def _cell(results: Results, placer: str, problem: str, expert: float) -> str:
    """As "0.912", "0.950 (1 of 3 does not fit)", or "31.2 ms" where the expert has no time."""
    records = results.of(placer, problem)
    fitting = np.array([record.step_seconds for record in records if record.fits])
    if not len(fitting):
        failed = any((failure.problem, failure.placer) == (problem, placer) for failure in results.failed)
        return "does not fit" if records else "failed" if failed else "-"
    mean = float(geometric_mean(fitting))
    unfit = len(records) - len(fitting)
    apart = f" ({unfit} of {len(records)} does not fit)" if unfit else ""
    return (f"{mean / expert:.3f}" if math.isfinite(expert) else formatting.seconds(mean)) + apart


def _curves(plot: bool) -> list[str]:
    if not plot:
        return []
    return [
        "## What more simulations buy",
        "",
        f"![Best step time over the human expert's, by simulations]({PLOT})",
        "",
        "Best step time so far over the expert's: geometric mean over the problems on which the expert fits and the",
        "placer finds a plan that fits with every seed (their number is in the legend), from where it has one of each.",
        "Lines are means over seeds, bands go from the least to the greatest of a seed.",
        "",
    ]


def _missing(suites: Sequence[Results]) -> list[str]:
    """Who failed, and what is not done yet."""
    failed = [
        f"- {failure.placer} on {failure.problem}, seed {failure.seed}, failed: {failure.reason}"
        for results in suites for failure in results.failed
    ]  # fmt: skip
    said = [*failed, *chain.from_iterable(_undone(results) for results in suites)]
    return said or ["Nothing: every placer has placed every problem with every seed."]


def _undone(results: Results) -> Iterator[str]:
    """A line per placer, its problems apart by the seeds that are missing."""
    for placer in results.placers:
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for problem, seeds in results.missing(placer).items():
            by_seeds.setdefault(tuple(seeds), []).append(problem)
        for missing, problems in by_seeds.items():
            where = "every problem" if len(problems) == len(results.problems) else ", ".join(problems)
            with_seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            yield f"- {placer} is not done on `{results.suite}` with {with_seeds}: {where}."


def _draw_curves(figure: Figure, suites: Sequence[Results], budget: int) -> None:
    """A panel per suite, each with its legend, as its problems are others."""
    across = figure.subplots(1, len(suites), sharey=True, squeeze=False)[0]
    points = np.unique(np.geomspace(1, max(budget, 2), POINTS).round())
    for axes, results in zip(across, suites, strict=True):
        for placer in DRAWN:
            _draw(axes, results, placer, points)
        axes.axhline(1.0, color=GREY, linewidth=0.7)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(results.suite)
        axes.set_xlabel("simulations")
        axes.grid()
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), fontsize=7)
    across[0].set_ylim(top=min(HIGHEST, across[0].get_ylim()[1]))  # of all panels, once all is drawn
    across[0].set_ylabel("step time / human expert's")


def _draw(axes: Axes, results: Results, placer: str, points: Floats) -> None:
    """The mean over seeds, and the band between the best and the worst of them."""
    ratios, problems = results.progress(placer, points)
    if not problems:
        return
    colour, style = DRAWN[placer]
    label = f"{placer} ({problems} of {len(results.problems)})"
    axes.step(points, geometric_mean(ratios.T), where="post", color=colour, linestyle=style, label=label)
    low, high = ratios.min(axis=0), ratios.max(axis=0)
    axes.fill_between(points, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
