"""What device placement is: a small op graph coloured by device, and its step, on one device and on two."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.drawing.figures import GREY, ORANGE, SKY, drawn
from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.problem import Problem

# name, seconds, producers, and where it is drawn: column, row
OPS: tuple[tuple[str, float, tuple[str, ...], float, float], ...] = (
    ("input", 1, (), 0, 0),
    ("left 1", 2, ("input",), 1, 0.6),
    ("left 2", 2, ("left 1",), 2, 0.6),
    ("right 1", 3, ("input",), 1, -0.6),
    ("right 2", 2, ("right 1",), 2, -0.6),
    ("join", 1, ("left 2", "right 2"), 3, 0),
)
PLACEMENTS = {"All on one device": (0, 0, 0, 0, 0, 0), "The left branch on a second device": (0, 1, 1, 0, 0, 0)}
COLOURS = (SKY, ORANGE)
HEIGHT = 3.9  # inches


def picture() -> bytes:
    """The file, as SVG."""
    return drawn(_paint, HEIGHT, "svg", facecolor="white", metadata={"Date": None})


def step(placement: tuple[int, ...]) -> Timeline:
    """The simulated step of a placement (ops,) on two devices; each transfer takes a second."""
    names = [op[0] for op in OPS]
    edges = [(names.index(producer), op) for op, (_, _, producers, *_) in enumerate(OPS) for producer in producers]
    flops, none, bytes_out = np.array([float(op[1]) for op in OPS]), np.zeros(len(OPS)), np.ones(len(OPS))
    graph = OpGraph("small", tuple(names), ("op",) * len(OPS), flops, none, bytes_out, np.array(edges))
    device = Device("gpu", "gpu", flops_per_second=1.0, bytes_per_second=1.0, memory_bytes=np.inf)
    cluster = Cluster.uniform("two", device, 2, latency=0.0, bandwidth=1.0, shared_out=False)
    return simulate(Problem(graph, cluster), Plan.of(placement))


def _paint(figure: Figure) -> None:
    panels = figure.subplots(2, 2, squeeze=False, gridspec_kw={"width_ratios": [1, 1.25]})
    longest = max(step(placement).step_seconds for placement in PLACEMENTS.values())
    for (graph, chart), (title, placement) in zip(panels, PLACEMENTS.items(), strict=True):
        timeline = step(placement)
        _paint_graph(graph, placement)
        _paint_step(chart, timeline)
        graph.set_title(title)
        chart.set_title(f"One step: {timeline.step_seconds:.0f} seconds")
        chart.set_xlim(0, longest)
    panels[-1, -1].set_xlabel("seconds")


def _paint_graph(axes: Axes, placement: tuple[int, ...]) -> None:
    """Boxes for ops, arrows for their outputs."""
    where = {name: (column, row) for name, _, _, column, row in OPS}
    arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 20, "shrinkB": 20}
    for name, _, producers, *_ in OPS:
        for producer in producers:
            axes.annotate("", where[name], where[producer], arrowprops=arrow)
    for (name, _, _, column, row), device in zip(OPS, placement, strict=True):
        box = {"boxstyle": "round", "facecolor": COLOURS[device], "edgecolor": "none"}
        axes.text(column, row, name, ha="center", va="center", fontsize=8, bbox=box)
    axes.set(xlim=(-0.5, 3.5), ylim=(-1.1, 1.1))
    axes.axis("off")


def _paint_step(axes: Axes, timeline: Timeline) -> None:
    """A row per device and one for transfers, each op by its name."""
    for op, (name, *_) in enumerate(OPS):
        device, start, finish = int(timeline.placement[op]), timeline.start[op], timeline.finish[op]
        _box(axes, start, finish, device, COLOURS[device], name)
    transfers = timeline.transfers
    for producer, start, finish in zip(transfers.producer, transfers.start, transfers.finish, strict=True):
        _box(axes, start, finish, 2, GREY, OPS[producer][0].replace(" ", "\n"))
    axes.set_yticks(range(3), ["gpu:0", "gpu:1", "links"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(2.5, -0.5)


def _box(axes: Axes, start: float, finish: float, row: int, colour: str, label: str) -> None:
    axes.broken_barh([(start, finish - start)], (row - 0.42, 0.84), facecolor=colour, edgecolor="white")
    axes.text((start + finish) / 2, row, label, ha="center", va="center", fontsize=6.5)
