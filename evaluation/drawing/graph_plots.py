"""A drawing of an op graph: from left to right as ops depend on each other, coloured by module or by device."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, save_figure
from evaluation.drawing.graph_page import graph_chart
from graphs.algorithms.order import levels
from graphs.op_graph import Floats, OpGraph, Phase

PALETTE = (BLUE, ORANGE, GREEN, PURPLE, RED, "#56b4e9", "#f0e442", "#7a5195")  # the rest is grey
MOST_EDGES = 20_000  # drawn: more would only blacken the page
HEIGHT = 4.0  # inches


def save_drawing(graph: OpGraph, path: Path, devices: Sequence[str] = (), seconds: Floats | None = None) -> None:
    """Write a drawing as PNG, SVG or a page (HTML): by module, or by device if (ops,) names of devices are given.

    A page is folded by module, and coloured by what the reader chooses: also by (ops,) seconds, if they are given.
    Raises InputError for another ending.
    """
    labels = devices or modules_of(graph)

    def paint(figure: Figure) -> None:
        _paint(figure, graph, labels)

    save_figure(
        path, paint, HEIGHT, what="a drawing", name=graph.name,
        facts=f"{len(graph):,} ops, {len(graph.edges):,} edges.",
        charts=lambda: [graph_chart(graph, modules_of(graph), devices, seconds)],
    )  # fmt: skip


def positions(graph: OpGraph) -> Floats:
    """(ops, 2) the length of the longest chain of ops before each, and its place among those as deep, around zero."""
    depth = levels(graph.edges, len(graph))
    order = np.lexsort((np.arange(len(graph)), depth))
    counts = np.bincount(depth)
    rank = np.empty(len(graph))
    rank[order] = np.arange(len(graph)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.stack([depth, rank - (counts[depth] - 1) / 2], axis=1)


def _paint(figure: Figure, graph: OpGraph, labels: Sequence[str]) -> None:
    axes = figure.subplots()
    place = positions(graph)
    shown = graph.edges[:: -(-len(graph.edges) // MOST_EDGES)] if len(graph.edges) > MOST_EDGES else graph.edges
    axes.add_collection(LineCollection(place[shown].tolist(), colors=GREY, linewidths=0.3, alpha=0.35, zorder=1))
    common = [label for label, _ in Counter(labels).most_common(len(PALETTE))]
    colours = dict(zip(sorted(common), PALETTE, strict=False))
    size = float(np.clip(4000 / len(graph), 0.5, 25))
    axes.scatter(
        place[:, 0], place[:, 1], s=size, c=[colours.get(label, GREY) for label in labels], linewidths=0, zorder=2
    )
    axes.set_axis_off()
    axes.margins(0.02)
    if len(shown) < len(graph.edges):
        said = f"{len(shown):,} of {len(graph.edges):,} edges are drawn"
        axes.text(1, 0, said, fontsize=7, ha="right", transform=axes.transAxes)
    shown_as = [*colours.items(), *([("other", GREY)] if len(set(labels)) > len(common) else [])]
    dots = [Line2D([], [], marker="o", linestyle="", color=c, label=label, markersize=4) for label, c in shown_as]
    figure.legend(handles=dots, loc="outside upper left", ncols=4, fontsize=7, handlelength=1)


def modules_of(graph: OpGraph) -> list[str]:
    """The module of each op, as deep as still leaves few of them; updates are one."""
    paths = [name.rpartition("/")[0].split(".") for name in graph.names]
    depth = next((d for d in (3, 2) if len({tuple(path[:d]) for path in paths}) <= len(PALETTE)), 1)
    is_update = (graph.phase >= Phase.UPDATE).tolist()
    modules = [".".join(path[:depth]) or "the model itself" for path in paths]
    return ["updates" if update else module for module, update in zip(modules, is_update, strict=True)]
