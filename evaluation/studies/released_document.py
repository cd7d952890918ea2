"""The study of the released policy as a document: its tables, its plot, and where the policy loses."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, RED, drawn
from evaluation.statistics import Estimate
from evaluation.studies.markdown import estimated, table
from evaluation.studies.released_parts import (
    ANNEALING,
    BEST,
    CLIMBING,
    CURVES,
    FEW,
    GREEDY,
    GROUPS,
    PROFILES,
    REFERENCE,
    SEARCH,
    SEARCHES,
    TUNED,
)  # fmt: skip
from evaluation.studies.released_results import (
    BEST_CHEAP,
    LONG_SEARCH,
    SAME,
    Against,
    Entry,
    Part,
    cluster_of,
    family_of,
    graph_of,
    is_kept_aside,
)  # fmt: skip
from evaluation.studies.released_targets import TARGETS
from graphs.foundation.files import write_whole

OWN = {"greedy": Entry(GREEDY), f"best of {FEW}": Entry(BEST), f"policy and search, {FEW}": Entry(SEARCH)}
RIVALS = {
    "human expert": Entry("human_expert"),
    "HEFT": Entry("heft"),
    "METIS": Entry("metis"),
    "METIS, its own defaults": Entry("metis:default=true"),
    "best cheap of each graph": BEST_CHEAP,
    f"annealing, {FEW}": Entry(ANNEALING),
}
LONG = {f"annealing, {REFERENCE:,}": LONG_SEARCH}
TITLES = {
    "heldout": "Graphs that it never saw, of families that it was trained on",
    "newfamilies": "Families that it never saw",
    "clusters": "Clusters that it never saw",
    PROFILES: "Profiles of real machines",
    CURVES: "What more simulations buy",
}
ABOUT = {
    "heldout": "The test graphs, at most four of a family, on two and on four P100.",
    "newfamilies": "All graphs of the families kept aside from training, on two and on four P100.",
    "clusters": "The test graphs of four families: more cards, faster ones, processors beside cards, unequal links.",
    PROFILES: "Graphs with measured times: PipeDream's and DAPPLE's layers on the links of four P100, and those "
    "workloads of Tarnawski et al. (2020) whose transfers matter to a step, on their own accelerators and CPUs.",
    CURVES: f"Two test graphs of every family, up to {REFERENCE:,} simulations.",
}
DRAWN = {
    ANNEALING: ("annealing", GREY), SEARCH: ("policy and search", BLUE), TUNED: ("policy, fine-tuned", ORANGE),
    CLIMBING: ("hill climbing", RED),
}  # fmt: skip
PLOT = "released_curves.png"
HIGHEST = 1.4  # ratio in the plot; what is slower leaves it, and stands in the table


def save_document(parts: Mapping[str, Part], folder: Path, command: str) -> Path:
    """Write `released.md` into a folder, and the plot of the curves if these are done."""
    folder.mkdir(parents=True, exist_ok=True)
    if CURVES in parts and parts[CURVES].seconds(LONG_SEARCH):
        panels = _kinds(parts[CURVES])

        def painted(figure: Figure) -> None:
            _draw_curves(figure, parts[CURVES], panels)

        write_whole(folder / PLOT, drawn(painted, 3.4, "png", dpi=90, facecolor="white"))
    path = folder / "released.md"
    write_whole(path, document(parts, command))
    return path


def document(parts: Mapping[str, Part], command: str) -> str:
    """The study in Markdown."""
    seeds = max(part.seeds for part in parts.values())
    lines = [
        "# The released policy: what it is worth without a search, and with one",
        "",
        "Greedy is the policy's most likely placement, which nobody simulated; best of 16 is the fastest of sixteen;",
        "policy and search is annealing that begins at the better of these and the cheap placements. The cheap placers",
        "are lists, partitions and rules that simulate once at most, and the best of them is another for each graph.",
        "",
        f"    {command}",
        "",
        f"Every graph has at most {GROUPS} op groups; {seeds} seed{'s' * (seeds > 1)}. Ratios are of step times, below",
        "1 the policy is faster; geometric means over the problems where both plans fit, with 95% intervals in",
        "[brackets], had other problems been drawn (those of one family resemble each other, so that the intervals",
        "are too narrow for other families). Behind them: on how many of how many problems it is faster by more than a",
        "tenth of a per cent, or fits where the rival does not.",
        "",
        "## Targets",
        "",
        *_targets(parts),
        "",
        *chain.from_iterable(_part(part) for part in parts.values()),
        "## Where the policy loses",
        "",
        *_losses(parts),
    ]
    return "\n".join(lines)


def cell(against: Against | None) -> str:
    """As "0.853 [0.821, 0.887] 30/38"."""
    if against is None or against.problems == 0:
        return "-"
    return f"{estimated(against.ratio)} {against.wins}/{against.problems}"


def _targets(parts: Mapping[str, Part]) -> list[str]:
    rows = []
    for target in TARGETS:
        against = target.measured(parts)
        unfit = f", does not fit on {against.unfit}" if against and against.unfit else ""
        rows.append([target.asked, target.bound, cell(against) + unfit, target.verdict(against)])
    return table(("asked for", "ratio", "measured", ""), rows)


def _part(part: Part) -> list[str]:
    """Everything about one part."""
    about = f"{ABOUT[part.name]} {len(part.problems)} problems. {_missing(part)}".strip()
    lines = [f"## {TITLES[part.name]} (`{part.name}`)", "", about]
    for label, problems in _kinds(part).items():
        rivals = RIVALS | (LONG if part.name == CURVES else {})
        lines += ["", *([f"{label.capitalize()}:", ""] if label else []), *_standings(part, rivals, problems)]
    if part.name == CURVES:
        lines += _curves(part)
    of = "file" if part.name == PROFILES else "family"
    lines += ["", f"By {of}:", "", *_by(part, of, part.apart(family_of))]
    if len(clusters := part.apart(cluster_of)) > 2 and part.name != PROFILES:
        lines += ["", "By cluster:", "", *_by(part, "cluster", clusters)]
    return [*lines, ""]


def _kinds(part: Part) -> dict[str, list[str]]:
    """Its problems, apart by whether the policy was trained on the family, where both kinds are there."""
    kept = [problem for problem in part.problems if is_kept_aside(problem)]
    trained = [problem for problem in part.problems if not is_kept_aside(problem)]
    both = {"trained families": trained, "families kept aside": kept}
    return both if kept and trained else {"": list(part.problems)}


def _missing(part: Part) -> str:
    """Who has not placed everything."""
    missing = part.missing()
    said = [f"{placer} with {budget:,} ({count})" for (placer, budget), count in missing.items()]
    return f"Without a plan, because of a failure or because it is not done yet: {', '.join(said)}." if said else ""


def _standings(part: Part, rivals: Mapping[str, Entry], problems: Collection[str]) -> list[str]:
    """A row per rival, a column per way to use the policy."""
    rows = [
        [over, *(cell(part.against(own, rival, problems)) for own in OWN.values()), str(part.unfit(rival, problems))]
        for over, rival in rivals.items()
    ]
    own_unfit = ["(does not fit)", *(str(part.unfit(own, problems)) for own in OWN.values()), ""]
    return table(("over", *OWN, "does not fit"), [*rows, own_unfit])


def _by(part: Part, what: str, groups: Mapping[str, Collection[str]]) -> list[str]:
    """A row per family, file or cluster: without intervals, which a handful of problems do not give."""
    greedy, best, search = OWN
    pairs = [
        *((greedy, rival) for rival in ("human expert", "HEFT", "METIS", "best cheap of each graph")),
        (best, "best cheap of each graph"),
        *((search, rival) for rival in ("best cheap of each graph", f"annealing, {FEW}")),
    ]
    if part.name == CURVES:
        pairs += [(own, name) for own in OWN for name in LONG]
    entries = RIVALS | LONG
    rows = [
        [name, str(len(problems)), *(_short(part.against(OWN[own], entries[rival], problems)) for own, rival in pairs)]
        for name, problems in groups.items()
    ]
    return table((what, "problems", *(f"{own} over {rival}" for own, rival in pairs)), rows)


def _short(against: Against) -> str:
    """As "0.853 6/8"."""
    mean = f"{against.ratio.value:.3f}" if against.ratio.count else "-"
    return f"{mean} {against.wins}/{against.problems}" if against.problems else "-"


def _curves(part: Part) -> list[str]:
    """Searches over annealing with the most simulations, and the policy's beside annealing with as many."""
    lines = []
    for label, problems in _kinds(part).items():
        rows = [
            [
                f"{budget:,}",
                *(cell(part.against(Entry(placer, budget), LONG_SEARCH, problems)) for placer in DRAWN),
                cell(part.against(Entry(SEARCH, budget), Entry(ANNEALING, budget), problems)),
            ]
            for budget in SEARCHES
        ]
        heads = ("simulations", *(name for name, _ in DRAWN.values()), "policy and search over annealing with as many")
        lines += ["", f"{(label or 'all').capitalize()}, over annealing with {REFERENCE:,}:", "", *table(heads, rows)]
    picture = f"![Step time over that of annealing with {REFERENCE:,} simulations, by simulations]({PLOT})"
    return [*lines, "", picture] if part.seconds(LONG_SEARCH) else lines


def _losses(parts: Mapping[str, Part]) -> list[str]:
    """Families and problems on which the best cheap placer is faster."""
    rows = list(chain.from_iterable(_lost(part) for part in parts.values()))
    if not rows:
        return ["On no problem is the best cheap placer faster than the greedy placement or the best of 16.", ""]
    said = chain.from_iterable(_lost_families(part) for part in parts.values())
    heads = ("part", "graph", "cluster", *OWN, "the best cheap placer")
    return [
        "Families whose geometric mean is above that of the best cheap placer of each graph:",
        "",
        *(list(said) or ["- none"]),
        "",
        "Problems on which the greedy placement or the best of 16 takes longer than the best cheap placer's, by more",
        "than a tenth of a per cent, or does not fit where that does; the numbers are step times over that placer's.",
        "",
        *table(heads, rows, words=3),
        "",
    ]


def _lost_families(part: Part) -> Iterator[str]:
    for label, own in list(OWN.items())[:2]:
        ratios = {name: part.against(own, BEST_CHEAP, some).ratio for name, some in part.apart(family_of).items()}
        worse = {name: ratio.value for name, ratio in ratios.items() if ratio.count and ratio.value > 1 + SAME}
        if worse:
            ordered = sorted(worse, key=lambda name: -worse[name])
            yield f"- `{part.name}`, {label}: {', '.join(f'{name} ({worse[name]:.3f})' for name in ordered)}."


def _lost(part: Part) -> Iterator[list[str]]:
    """The rows of the problems that a part loses, the worst first."""
    found: list[tuple[float, list[str]]] = []
    for problem in part.problems:
        against = {label: part.against(own, BEST_CHEAP, [problem]) for label, own in OWN.items()}
        if any(against[label].losses for label in list(OWN)[:2]):
            cells = [_alone(each) for each in against.values()]
            greedy = against["greedy"]
            worst = greedy.ratio.value if greedy.ratio.count else math.inf
            row = [part.name, graph_of(problem), cluster_of(problem), *cells, part.best_cheap[problem][1]]
            found.append((worst, row))
    yield from (row for _, row in sorted(found, key=lambda item: -item[0]))


def _alone(against: Against) -> str:
    """The ratio on a single problem."""
    if against.unfit:
        return "does not fit"
    return f"{against.ratio.value:.3f}" if against.ratio.count else "-"


def _draw_curves(figure: Figure, part: Part, panels: Mapping[str, Collection[str]]) -> None:
    """A panel per kind of family: simulations against step time over that of the longest annealing."""
    across = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (label, problems) in zip(across, panels.items(), strict=True):
        for placer, (name, colour) in DRAWN.items():
            found = ((n, part.against(Entry(placer, n), LONG_SEARCH, problems).ratio) for n in SEARCHES)
            _draw(axes, name, colour, {n: ratio for n, ratio in found if ratio.count})
        best, greedy = (part.against(Entry(placer), LONG_SEARCH, problems).ratio for placer in (BEST, GREEDY))
        axes.plot([FEW], [best.value], "s", color=GREEN, markersize=5, label=f"best of {FEW}")
        axes.axhline(greedy.value, color=GREEN, linewidth=1, linestyle=(0, (4, 3)), label="greedy, not simulated")
        axes.axhline(1.0, color=GREY, linewidth=0.7)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(top=min(HIGHEST, axes.get_ylim()[1]))
        axes.set_title(label or "all problems")
        axes.set_xlabel("simulations")
        axes.grid()
    across[0].set_ylabel(f"step time / annealing with {REFERENCE:,}")
    figure.legend(*across[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def _draw(axes: Axes, name: str, colour: str, curve: Mapping[int, Estimate]) -> None:
    """A line through the means, and the band of their intervals."""
    axes.plot(list(curve), [ratio.value for ratio in curve.values()], ".-", color=colour, label=name)
    low, high = ([getattr(ratio, end) for ratio in curve.values()] for end in ("low", "high"))
    axes.fill_between(list(curve), low, high, color=colour, alpha=0.15, linewidth=0)
