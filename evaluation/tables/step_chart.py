"""A simulated step as the terminal shows it: a line per device, from left to right what it did."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from envs.timelines import gantt
from envs.timelines.pass_spans import SpanKind
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import seconds
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
COLOURS = {  # of a span's label, and of its block
    SpanKind.FORWARD: ("white", "blue"),
    SpanKind.BACKWARD: ("black", "dark_orange"),
    SpanKind.INPUT_GRADIENT: ("black", "dark_orange"),
    SpanKind.WEIGHT_GRADIENT: ("black", "yellow"),
    SpanKind.RECOMPUTATION: ("white", "deep_sky_blue4"),
    SpanKind.UPDATE: ("white", "green"),
}


class StepChart:
    """A chart of what each device did; rich prints it as wide as the terminal is.

    A character is one of the equal slices of the step. Of an op placement it stands for the phase of the op that takes
    most of the slice; of other plans passes are shown, as `Timeline.draw` does.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the devices, the length of the step, and what the characters stand for."""
        timeline, names = self._timeline, [device.name for device in self._timeline.problem.cluster.devices]
        margin = max(map(len, names)) + 4
        columns = max(min(WIDTH, options.max_width) - margin, 1)
        rows = self._phases(columns) if timeline.passes is None else self._passes(columns)
        for name, row in zip(names, rows, strict=True):
            yield Text.assemble(f"  {name:<{margin - 2}}", *row)
        legend = Text(" " * margin)
        for mark, style, words in (*self._used(), IDLE):
            legend.append(mark, style).append(f" {words}  ")
        taken = seconds(timeline.step_seconds)
        yield legend.append(f"{taken:>{max(margin + columns - len(legend), 0)}}\n")

    def _used(self) -> list[tuple[str, str, str]]:
        """The entries of the legend: mark, style and words."""
        passes, phases = self._timeline.passes, self._timeline.problem.graph.phase
        if passes is None:
            return [MARKS[Phase(phase)] for phase in sorted(set(phases.tolist()))]
        kinds = (SpanKind(kind) for kind in sorted(set(passes.kind.tolist())))
        return [(kind.letter, " on ".join(COLOURS[kind]), kind.words) for kind in kinds]

    def _phases(self, columns: int) -> Iterator[list[tuple[str, str]]]:
        """Of each device, text and style."""
        timeline = self._timeline
        phases = [Phase(phase) for phase in timeline.problem.graph.phase.tolist()]
        for row in timeline.rows()[: len(timeline.problem.cluster)]:
            ops = gantt.cells(row, timeline.step_seconds, columns).tolist()
            yield [(IDLE if op == gantt.IDLE else MARKS[phases[op]])[:2] for op in ops]

    def _passes(self, columns: int) -> Iterator[list[tuple[str, str]]]:
        """Of each device, text and style."""
        timeline, chart = self._timeline, self._timeline.chart()
        assert timeline.passes is not None
        kinds = [SpanKind(kind) for kind in timeline.passes.kind.tolist()]
        for device in range(len(timeline.problem.cluster)):
            row: list[tuple[str, str]] = []
            for owner, label, fill, space in chart.segments(device, timeline.step_seconds, columns):
                if owner == gantt.IDLE:
                    row.append((IDLE[0] * len(fill), IDLE[1]))
                else:
                    ink, block = COLOURS[kinds[owner]]
                    row += [(label, f"{ink} on {block}"), (fill, f"{block} on {block}"), (space, "")]
            yield row
