"""The document of the study of what decides: tables, a plot, and sentences that say no more than the intervals do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREY, ORANGE, drawn
from evaluation.reporting.findings import than
from evaluation.statistics import Estimate
from evaluation.studies.decides_pieces import BEST, CHEAP, GREEDY, PASSES, passes_name
from evaluation.studies.decides_problems import UNSEEN
from evaluation.studies.decides_results import Results, Verdict, verdict
from evaluation.studies.decides_variants import BASE, CLUSTERS, FAMILIES, GROUPS, VARIANTS, base_recipe
from evaluation.studies.markdown import estimated, table
from graphs.foundation.files import write_whole

PLOT = "decides_ratios.png"
SAID: dict[Verdict, str] = {
    "worse": "slower than the base",
    "better": "faster than the base",
    "same": "no difference that this study can see (the interval contains 1)",
}


def save_document(results: Results, folder: Path, command: str) -> Path:
    """Write `decides.md` and its plot into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    height = 1.0 + 0.32 * len(results.variants)
    plot = drawn(lambda figure: _forest(figure, results), height, "png", dpi=90, facecolor="white")
    write_whole(folder / PLOT, plot)
    path = folder / "decides.md"
    write_whole(path, document(results, command))
    return path


def document(results: Results, command: str) -> str:
    """The study in Markdown."""
    size, choices = results.settings, results.settings.choices
    return "\n".join(
        [
            "# What decides how good a policy gets?",
            "",
            "One small recipe of the sequential decoder is trained as it is and with one change at a time, and each",
            "policy is judged on graphs that it never saw: by its greedy placement, which takes no simulation, and by",
            f"the best of {choices} placements. Which changes matter?",
            "",
            f"    {command}",
            "",
            *_size(results),
            "",
            "## Variants",
            "",
            *_variants(results),
            "",
            "Step times over the base's of the same seed, and over those of the best cheap placer of each graph, which",
            f"is the fastest of {_listed(CHEAP)}; below 1 is better. Geometric means over seeds and",
            "problems, with 95% intervals in [brackets], for which both are drawn anew (of a single seed, problems).",
            "Fit: share of the greedy placements that fit in memory; means are of those that do. Training is wall",
            "clock on a core of a shared machine, a rough figure, and simulations are the training's, search for what",
            "is imitated included in both.",
            "",
            f"![Step time over the base's, greedy and best of {choices}]({PLOT})",
            "",
            "## The base, family by family",
            "",
            *_families(results),
            "",
            f"No variant is trained on {UNSEEN}.",
            "",
            "## Passes",
            "",
            *_passes(results),
            "",
            "The base's greedy placement after so many passes over all ops, of which each sees the one before.",
            "",
            "## What follows",
            "",
            *_sentences(results),
            "",
            "## What it does not say",
            "",
            f"The trainings are short ({size.updates} updates of PPO), and the base's settings are from longer ones:",
            "a change that slows learning down at first may pay later. Each variant keeps the other settings of the",
            "base, though its own best ones may differ, GDP's above all. Few seeds make a coarse interval, and of many",
            "intervals of 95% one in twenty misses. Equal numbers of updates are not equal numbers of simulations,",
            "nor equal times: both are in the table. Imitation alone ends where the others' PPO begins.",
            "",
        ]
    )


def _size(results: Results) -> list[str]:
    """What was trained on what, and judged by what."""
    ppo, imitation = (getattr(base_recipe(results.settings), section) for section in ("ppo", "imitation"))
    done = {name: len(results.of(name)) for name in results.variants}
    most = max(done.values())
    fewer = [f"{VARIANTS[name].label} ({count})" for name, count in done.items() if count < most]
    several = f"{most} seed{'s' if most > 1 else ''} each" + (f", but fewer of {', '.join(fewer)}" if fewer else "")
    return [
        f"Base: the sequential decoder of width 64 on the training graphs of {_listed(FAMILIES)}",
        f"in {GROUPS} groups, on {_listed(CLUSTERS)} and a randomised copy of each.",
        f"It imitates, for {imitation.updates} updates, what annealing finds in {imitation.simulations} simulations, "
        f"and goes on with {ppo.updates} updates of PPO,",
        f"each on {ppo.samples} placements of each of {ppo.problems_per_update} problems, and imitation beside it at a "
        f"weight of {imitation.weight} that falls to 0.",
        f"Judged by {len(results.problems)} problems: the test graphs of the same families and the first "
        f"{results.settings.unseen_graphs} of {UNSEEN}, on both clusters.",
        f"Done: {len(done)} variants, {several}.",
    ]


def _variants(results: Results) -> list[str]:
    """A row per variant."""
    best = f"best of {results.settings.choices}"
    heads = ("", "greedy / base", f"{best} / base", "greedy / best cheap", "fit", "training", "simulations")
    rows = []
    for name in results.variants:
        pieces = results.of(name)
        seconds = [piece.training_seconds for piece in pieces if piece.training_seconds is not None]
        against = [estimated(results.over(name, placer, (BASE, placer))) for placer in (GREEDY, BEST)]
        rows.append(
            [
                VARIANTS[name].label,
                *(against if name != BASE else ["1", "1"]),
                estimated(results.over_cheap(name, GREEDY)),
                f"{results.fitting(name, GREEDY):.0%}",
                f"{np.mean(seconds):,.0f} s" if seconds else "-",
                f"{np.mean([piece.simulations for piece in pieces]):,.0f}",
            ]
        )
    return table(heads, rows)


def _families(results: Results) -> list[str]:
    """The base against the cheap placers, a row per family and one for all."""
    heads = ("", "greedy / best cheap", f"best of {results.settings.choices} / best cheap")
    rows = {**{family: [family] for family in results.families}, "all": results.families}
    return table(
        heads,
        [
            [label, *(estimated(results.over_cheap(BASE, placer, families)) for placer in (GREEDY, BEST))]
            for label, families in rows.items()
        ],
    )


def _passes(results: Results) -> list[str]:
    """The base after one pass and after more."""
    first = (BASE, passes_name(PASSES[0]))
    return table(
        ("passes", "over one pass", "over the best cheap placer"),
        [
            [
                str(passes),
                estimated(results.over(BASE, passes_name(passes), first)) if passes > PASSES[0] else "1",
                estimated(results.over_cheap(BASE, passes_name(passes))),
            ]
            for passes in PASSES
        ],
    )


def _sentences(results: Results) -> list[str]:
    """What the intervals say: of each judgement who is slower, faster, or not apart; then the base, and its passes."""
    said = _luck(results)
    for placer, label in ((GREEDY, "Greedy"), (BEST, f"Best of {results.settings.choices}")):
        ratios = {name: results.over(name, placer, (BASE, placer)) for name in results.variants if name != BASE}
        for which, words in SAID.items():
            some = {name: ratio for name, ratio in ratios.items() if ratio.count and verdict(ratio) == which}
            ordered = sorted(some.items(), key=lambda item: -item[1].value)
            if ordered:
                named = (f"{VARIANTS[name].label} ({ratio.value:.3f})" for name, ratio in ordered)
                said.append(f"- {label}, {words}: {'; '.join(named)}.")
    for placer, label in ((GREEDY, "greedy placement"), (BEST, f"best of {results.settings.choices}")):
        for families, where in ((results.families, "over all test graphs"), ([UNSEEN], f"on {UNSEEN}")):
            ratio = results.over_cheap(BASE, placer, families)
            said.append(
                f"- The base's {label} takes, {where}, {_clearly(ratio, 'the best cheap placer of each graph')}."
            )
    for passes in PASSES[1:]:
        ratio = results.over(BASE, passes_name(passes), (BASE, passes_name(PASSES[0])))
        said.append(f"- Its greedy placement takes, after {passes} passes, {_clearly(ratio, 'after one')}.")
    return said


def _luck(results: Results) -> list[str]:
    """How much of a difference is that of seeds."""
    apart = [results.seeds_apart(BASE, placer) for placer in (GREEDY, BEST)]
    if not np.isfinite(apart).all():
        return ["- All of this is of a single seed of the base: the intervals do not hold the luck of a training."]
    greedy, best = (f"{ratio - 1:.1%}" for ratio in apart)
    return [f"- The base's own seeds are up to {greedy} apart, greedy, and {best}, best of {results.settings.choices}."]


def _clearly(ratio: Estimate, other: str) -> str:
    """A ratio of times in words, unless its interval contains 1."""
    if ratio.count == 0:
        return "a time that is not measured"
    if verdict(ratio) == "same":
        return f"a time not clearly apart from that of {other} ({estimated(ratio)})"
    return f"{than(ratio.value, other)} ({estimated(ratio)})"


def _forest(figure: Figure, results: Results) -> None:
    """A row per variant, with the ratio to the base of both judgements and their intervals."""
    axes = figure.subplots()
    names = [name for name in results.variants if name != BASE]
    axes.axvline(1.0, color=GREY, linewidth=1)
    judged = ((GREEDY, "greedy", BLUE, -0.12), (BEST, f"best of {results.settings.choices}", ORANGE, 0.12))
    for placer, label, colour, shift in judged:
        ratios = [results.over(name, placer, (BASE, placer)) for name in names]
        values = np.array([ratio.value for ratio in ratios])
        ends = np.array([[ratio.value - ratio.low, ratio.high - ratio.value] for ratio in ratios]).reshape(-1, 2)
        places = np.arange(len(names)) + shift
        axes.errorbar(values, places, xerr=ends.T.clip(0), fmt="o", color=colour, markersize=4, label=label)
    axes.set_yticks(range(len(names)), [VARIANTS[name].label for name in names])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlabel("step time / base's; below 1 is better")
    axes.grid(axis="x")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)


def _listed(names: Sequence[str]) -> str:
    """In a sentence."""
    plain = [name.replace("_", " ") for name in names]
    return ", ".join(plain[:-1]) + f" and {plain[-1]}"
