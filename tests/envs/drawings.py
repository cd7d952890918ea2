"""Drawings of timelines, for tests that say what a step looks like."""

from __future__ import annotations

from envs.timeline import Timeline


def drawn_rows(timeline: Timeline, columns: int = 1) -> list[str]:
    """The rows of the timeline's drawing, without the axis and the legend, at this many columns per second."""
    margin = max(len(row.label) for row in timeline.chart().rows)
    lines = timeline.draw(margin + 3 + round(columns * timeline.step_seconds)).split("\n")
    return [line for line in lines if line.endswith("|")]
