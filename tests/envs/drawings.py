"""Drawings of timelines, for tests that say what a step looks like."""

from __future__ import annotations

from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph


def drawn_rows(timeline: Timeline, columns: int = 1) -> list[str]:
    """The rows of the timeline's drawing, without the axis and the legend, at this many columns per second."""
    margin = max(len(row.label) for row in timeline.chart().rows)
    lines = timeline.draw(margin + 3 + round(columns * timeline.step_seconds)).split("\n")
    return [line for line in lines if line.endswith("|")]


def drawn_diamond() -> Timeline:
    """A step of a -> b, c -> d, half of it on each of two devices, whose transfers take turns."""
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], output_bytes=[1, 2, 1, 1])
    timeline = Simulator(Problem(graph, toy_cluster(2)), order="fifo").timeline([0, 0, 1, 1])
    assert drawn_rows(timeline) == [
        "gpu:0       |abbb...|",
        "gpu:1       |..ccc.d|",
        "gpu:0>gpu:1 |.a..bb.|",
    ]
    return timeline
