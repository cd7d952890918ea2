"""A simulated step as the terminal shows it: a line per device, from left to right what it did."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from envs import gantt
from envs.timeline import Timeline
from evaluation.formatting import seconds
from graphs.op_graph import Phase

WIDTH = 100  # characters, at most
IDLE = ("·", "dim", "idle")
# a letter on its own colour is a block in a terminal, and a letter in a file
MARKS = {
    Phase.FORWARD: ("f", "blue on blue", "forward"),
    Phase.BACKWARD: ("b", "dark_orange on dark_orange", "backward"),
    Phase.UPDATE: ("u", "green on green", "update"),
    Phase.REFRESH: ("r", "magenta on magenta", "refresh"),
}


class StepChart:
    """A chart of the ops on each device; rich prints it as wide as the terminal is.

    A character is one of the equal slices of the step, and stands for the phase of the op that takes most of it.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the devices, the length of the step, and what the characters stand for."""
        timeline, names = self._timeline, [device.name for device in self._timeline.problem.cluster.devices]
        phases = [Phase(phase) for phase in timeline.problem.graph.phase.tolist()]
        margin = max(map(len, names)) + 4
        columns = max(min(WIDTH, options.max_width) - margin, 1)
        for row in timeline.rows()[: len(names)]:
            ops = gantt.cells(row, timeline.step_seconds, columns).tolist()
            marks = (IDLE if op == gantt.IDLE else MARKS[phases[op]] for op in ops)
            yield Text.assemble(f"  {row.label:<{margin - 2}}", *((mark, style) for mark, style, _ in marks))
        legend = Text(" " * margin)
        for mark, style, name in (*(MARKS[phase] for phase in sorted(set(phases))), IDLE):
            legend.append(mark, style).append(f" {name}  ")
        taken = seconds(timeline.step_seconds)
        yield legend.append(f"{taken:>{max(margin + columns - len(legend), 0)}}\n")
