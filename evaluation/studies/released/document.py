"""What the study of the released policy found: ratios, the plot of its searches, and where the policy loses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, RED
from evaluation.records.record import Record
from evaluation.records.statistics import Estimate
from evaluation.studies.comparisons import CHEAP
from evaluation.studies.document import across_simulations
from evaluation.studies.frame import EQUAL_TIMES, Against, Frame, cluster_of, family_of
from evaluation.studies.released import parts
from evaluation.studies.released.parts import ANNEALING, BEST, BEST_CHEAP, FEW, GREEDY, LONG_SEARCH, Entry
from evaluation.studies.simulated import Simulated

OWN = {"greedy": Entry(GREEDY), f"best of {FEW}": Entry(BEST), f"policy and search, {FEW}": Entry(parts.SEARCH)}
WITHOUT_SEARCH = dict(list(OWN.items())[:2])
OTHERS = {
    "human expert": Entry("human_expert"),
    "HEFT": Entry("heft"),
    "METIS": Entry("metis"),
    "METIS, its own defaults": Entry("metis:default=true"),
    "best cheap of each graph": BEST_CHEAP,
    f"annealing, {FEW}": Entry(ANNEALING),
}
LONG = {f"annealing, {parts.REFERENCE:,}": LONG_SEARCH}
DRAWN = {
    ANNEALING: ("annealing", GREY), parts.SEARCH: ("policy and search", BLUE),
    parts.TUNED: ("policy, fine-tuned", ORANGE), parts.CLIMBING: ("hill climbing", RED),
}  # fmt: skip
HIGHEST = 1.4  # ratio in the plot; what is slower leaves it, and stands in the table


def save(study: Simulated, found: Mapping[str, Frame], folder: Path, records: Iterable[Record] = ()) -> Path:
    """Write the document of some parts into a folder, with the plot of the curves if these are done.

    The `records` say how plans are run.
    """
    curves = found.get(parts.CURVES)
    painted = (partial(_draw_curves, part=curves), 3.4) if curves and LONG_SEARCH in curves.seconds else None
    seeds = max(part.num_seeds for part in found.values())
    return study.written(
        folder, records, painted=painted, command=study.command(parts=",".join(found), seeds=seeds), parts=found,
        seeds=seeds, released=parts, own=OWN, others=OTHERS, long=LONG, drawn=DRAWN, kinds=kinds, groupings=groupings,
        pairs=pairs, slower_families=slower_families, lost=lost,
    )  # fmt: skip


def kinds(part: Frame) -> dict[str, list[str]]:
    """Its problems, apart by whether the policy was trained on the family, where both kinds are there."""
    kept = [problem for problem in part.problems if parts.is_kept_aside(problem)]
    trained = [problem for problem in part.problems if not parts.is_kept_aside(problem)]
    both = {"trained families": trained, "families kept aside": kept}
    return both if kept and trained else {"": list(part.problems)}


def groupings(name: str, part: Frame) -> dict[str, dict[str, list[str]]]:
    """Its problems by family or file, and by cluster if there are several."""
    if name == parts.PROFILES:
        return {"file": part.apart(family_of)}
    clusters = part.apart(cluster_of)
    return {"family": part.apart(family_of)} | ({"cluster": clusters} if len(clusters) > 2 else {})


def pairs(name: str) -> dict[str, tuple[Entry, Entry]]:
    """The pairs of placers in the tables by family, file or cluster of a part."""
    greedy, best, search = OWN
    named = [
        *((greedy, rival) for rival in ("human expert", "HEFT", "METIS", "best cheap of each graph")),
        (best, "best cheap of each graph"),
        *((search, rival) for rival in ("best cheap of each graph", f"annealing, {FEW}")),
        *((own, long) for own in OWN for long in LONG if name == parts.CURVES),
    ]
    return {f"{own} over {rival}": (OWN[own], (OTHERS | LONG)[rival]) for own, rival in named}


def slower_families(found: Mapping[str, Frame]) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    """Part, one of the two without a search, and the families where it is slower than BEST_CHEAP, the worst first."""
    for name, part in found.items():
        for label, own in WITHOUT_SEARCH.items():
            ratios = (
                (family, part.against(own, BEST_CHEAP, some).ratio) for family, some in part.apart(family_of).items()
            )
            slower = [
                (family, ratio.value) for family, ratio in ratios if ratio.count and ratio.value > 1 + EQUAL_TIMES
            ]
            if slower:
                yield name, label, sorted(slower, key=lambda item: -item[1])


def lost(part: Frame) -> list[tuple[str, list[Against], str]]:
    """The problems that one of the two without a search loses to a cheap placer, and which one; the worst first."""
    found = []
    for problem in part.problems:
        against = [part.against(own, BEST_CHEAP, [problem]) for own in OWN.values()]
        if any(each.losses for each in against[: len(WITHOUT_SEARCH)]):
            found.append((problem, against, _cheapest(part, problem)))
    return sorted(found, key=lambda item: -item[1][0].ratio.value if item[1][0].ratio.count else -math.inf)


def _cheapest(part: Frame, problem: str) -> str:
    """The fastest of the cheap placers."""
    seconds = np.array([part.means[Entry(placer)][part.problems.index(problem)] for placer in CHEAP])
    return CHEAP[np.nanargmin(seconds)]


def _draw_curves(figure: Figure, part: Frame) -> None:
    """A panel per kind of family: simulations against step time over that of the longest annealing."""
    panels = kinds(part)
    across = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (label, problems) in zip(across, panels.items(), strict=True):
        for placer, (name, colour) in DRAWN.items():
            found = ((n, part.against(Entry(placer, n), LONG_SEARCH, problems).ratio) for n in parts.SEARCHES)
            _draw(axes, name, colour, {n: ratio for n, ratio in found if ratio.count})
        best, greedy = (part.against(Entry(placer), LONG_SEARCH, problems).ratio for placer in (BEST, GREEDY))
        axes.plot([FEW], [best.value], "s", color=GREEN, markersize=5, label=f"best of {FEW}")
        axes.axhline(greedy.value, color=GREEN, linewidth=1, linestyle=(0, (4, 3)), label="greedy, not simulated")
        axes.axhline(1.0, color=GREY, linewidth=0.7)
        across_simulations(axes, label or "all problems")
        axes.set_ylim(top=min(HIGHEST, axes.get_ylim()[1]))
    across[0].set_ylabel(f"step time / annealing with {parts.REFERENCE:,}")
    figure.legend(*across[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def _draw(axes: Axes, name: str, colour: str, curve: Mapping[int, Estimate]) -> None:
    """A line through the means, and the band of their intervals."""
    axes.plot(list(curve), [ratio.value for ratio in curve.values()], ".-", color=colour, label=name)
    low, high = ([getattr(ratio, end) for ratio in curve.values()] for end in ("low", "high"))
    axes.fill_between(list(curve), low, high, color=colour, alpha=0.15, linewidth=0)
