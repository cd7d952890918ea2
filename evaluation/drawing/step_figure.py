"""A step as a chart to zoom into and to ask: lanes of devices, links and memory on one axis of time, by Bokeh."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    LinearAxis,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.annotations import Label
from bokeh.plotting import figure

from envs.timelines.timeline import Timeline
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW
from evaluation.drawing.interactive import LegendEntry, chart_html, style_axes
from evaluation.drawing.shades import INK, LINE, PAPER, TINT
from evaluation.drawing.step_boxes import MOST_BOXES, StepLanes
from evaluation.drawing.step_table import BoxTable
from evaluation.records import formatting
from graphs.op_graph import Floats

FOLDER = Path(__file__).resolve().parent / "templates"
COLOURS = {
    "forward": BLUE, "backward": ORANGE, "input gradient": RED, "weight gradient": YELLOW, "recomputation": SKY,
    "update": GREEN, "refresh": PURPLE, "transfer": GREY, "all-reduce": PURPLE,
}  # fmt: skip
FONT = "system-ui, sans-serif"
LIGHTER = 0.45  # how much white is in the last of the stages of a device
STATE, ACTIVATIONS = "#4a97c6", "#a5d2f0"
MEMORY_STEPS = 12_000  # in a chart: bounds its size
FAR = 3.0  # times the peak: a limit beyond that is not drawn
NAME = 18  # characters of a lane's label
TABLE, PICKED = "boxes", "picked"  # names of sources: of all boxes, and of those that a page's own code frames

# in pixels
DEVICE, LINK, MEMORY, HEAD, GAP = (24, 12), (16, 12), (52, 36), 30, 10  # heights of a lane, if few and if many
SAID = 15  # of a lane of memory, at its top, for what it says
MANY = 16  # lanes
CHARACTER = 6.6
AXES = 62  # what is above and below the lanes
HINT = (
    "Point at a box to see what it is and why it did not begin earlier. Drag over a span of time to enlarge it, or "
    "turn the wheel with Ctrl held; the round arrow shows the whole step again."
)
CONNECTED = 150  # boxes of the critical path: of a longer one the lines between boxes are left out
EDGED = 400  # boxes: more are drawn without an edge, which would cover them
BOX = [
    ("what", "@box{what}"), ("module", "@box{module}"), ("where", "@box{where}"), ("when", "@box{time}"),
    ("bytes", "@box{bytes}"), ("why not earlier", "@box{why}"),
]  # fmt: skip


@dataclass(frozen=True)
class _Place:
    """Where a step's lanes are: middles and heights in pixels from the top."""

    lanes: Floats  # (lanes,) middles
    heights: Floats  # (lanes,)
    memory: Floats  # (devices with a lane,) bottoms
    memory_height: float


def step_chart(timelines: Mapping[str, Timeline]) -> str:
    """One or several steps below one another on one axis of time, as an HTML element; their names are the headings.

    Of each, devices and the busiest links have lanes with a box for what they did, which says more under the pointer,
    and devices have one for the memory that they hold. A box of the legend shows and hides what it names.
    """
    chart = _StepFigure(timelines)
    said = "What each device and link did during the step, and the memory that devices held"
    return chart_html(chart.figure, description=said, legend=chart.legend(), hint=HINT)


class _StepFigure:
    """The figure of some steps."""

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        most = MOST_BOXES // max(len(timelines), 1)
        self.steps = {name: StepLanes.of(timeline, most) for name, timeline in timelines.items()}
        self.seconds = max((timeline.step_seconds for timeline in timelines.values()), default=0.0)
        self.scale, self.unit = time_unit(self.seconds)
        self.end = self.seconds * self.scale or 1.0
        self.places, self.total = self._places()
        table, stepped = BoxTable(), zip(self.steps.values(), self.places, strict=True)
        first = [table.add(step, place.lanes, place.heights, self.scale) for step, place in stepped]
        self.table = ColumnDataSource(table.columns(), name=TABLE, tags=[table.words])
        self.written = CustomJSHover(
            args={"table": self.table, "unit": self.unit.replace("seconds", "s")}, code=_code("step_hover.js")
        )
        self.ticks: dict[int, str] = {}
        self.kinds = set[str]()  # that occur
        self.has_limit = self.has_later = False
        self.figure = self._empty()
        self._draw(first)

    def legend(self) -> list[LegendEntry]:
        """What every colour means; most of them can be hidden."""
        entries = [LegendEntry(kind, colour, (kind,)) for kind, colour in COLOURS.items() if kind in self.kinds]
        entries += [LegendEntry("lighter: later stages of the device", "#9fc9e3")] if self.has_later else []
        entries += [
            LegendEntry("idle (a bubble, or a wait for a transfer or the host)", "hatched", ("idle",)),
            LegendEntry("critical path", "path", ("path",)),
            LegendEntry("memory: parameters and their state", STATE, ("state",)),
            LegendEntry("memory: activations and the like", ACTIVATIONS, ("activations",)),
        ]
        return entries + ([LegendEntry("memory limit", "dashed", ("limit",))] if self.has_limit else [])

    def _places(self) -> tuple[list[_Place], float]:
        """Of each step where its lanes are, and the height of all."""
        places, top = list[_Place](), 0.0
        count = sum(len(step.lanes) for step in self.steps.values())
        device, link, memory = (few if count <= MANY else many for few, many in (DEVICE, LINK, MEMORY))
        for name, step in self.steps.items():
            top += HEAD if name else 0
            heights = np.array([float(link if lane.device < 0 else device) for lane in step.lanes])
            apart = np.array([GAP * (lane.device < 0) for lane in step.lanes])
            lanes = np.asarray(top + np.cumsum(heights) - heights / 2 + apart, np.float64)
            top += float(heights.sum()) + GAP * (1 + any(lane.device < 0 for lane in step.lanes))
            holders = sum(lane.device >= 0 for lane in step.lanes)
            bottoms = np.asarray(top + (memory + 4.0) * np.arange(1, holders + 1), np.float64)
            top += (memory + 4.0) * holders + GAP
            places.append(_Place(lanes, heights, bottoms, float(memory)))
        return places, top

    def _empty(self) -> figure:
        """The figure with axes and tools."""
        end = self.end
        lanes = [lane for step in self.steps.values() for lane in step.lanes]
        margin = int(CHARACTER * max((min(len(lane.label), NAME) for lane in lanes), default=0)) + 22
        plot = figure(
            sizing_mode="stretch_width", height=int(self.total) + AXES, min_border_left=margin, min_border_right=14,
            x_range=Range1d(start=0, end=end, bounds=(0, end), min_interval=end * 1e-6),
            y_range=Range1d(start=self.total, end=0),
            tools="", toolbar_location="above", background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
        )  # fmt: skip
        zoom, wheel = BoxZoomTool(dimensions="width"), WheelZoomTool(dimensions="width", modifiers="ctrl")
        plot.add_tools(zoom, PanTool(dimensions="width"), wheel, ZoomInTool(dimensions="width"),
                       ZoomOutTool(dimensions="width"), ResetTool(), SaveTool())  # fmt: skip
        plot.toolbar.active_drag, plot.toolbar.active_scroll, plot.toolbar.logo = zoom, wheel, None
        plot.ygrid.visible = False
        plot.xgrid.grid_line_color = LINE
        plot.xaxis.axis_label = self.unit
        plot.add_layout(LinearAxis(), "above")
        style_axes(plot)
        plot.yaxis.major_label_text_color, plot.yaxis.axis_line_color = INK, None
        plot.yaxis.major_tick_line_color = None
        return plot

    def _draw(self, first: list[int]) -> None:
        """All steps, whose first boxes in the table are these."""
        for (name, step), place, begin in zip(self.steps.items(), self.places, first, strict=True):
            self._backgrounds(name, step, place)
            self._idle(step, place, begin)
            self._boxes(step, begin)
        for step, place in zip(self.steps.values(), self.places, strict=True):
            self._path(step, place)
            self._memory(step, place)
        self._picked()
        self.figure.yaxis.ticker = FixedTicker(ticks=list(self.ticks))
        self.figure.yaxis.major_label_overrides = {float(at): label for at, label in self.ticks.items()}
        self._labels()

    def _boxes(self, step: StepLanes, first: int) -> None:
        """A glyph per kind and, of passes, per stage of a device: the later, the lighter."""
        boxes, later, share = step.boxes, step.later, step.filled
        self.has_later |= bool(later.any())
        columns = {name: np.asarray(column)[first : first + len(boxes)] for name, column in self.table.data.items()}
        for kind, shade in sorted(set(zip(boxes.kind.tolist(), later.tolist(), strict=True))):
            name, mine = step.kinds[kind], (boxes.kind == kind) & (later == shade)
            self.kinds.add(name)
            data = {key: columns[key][mine] for key in ("start", "finish", "y", "height")}
            data |= {"box": (first + np.flatnonzero(mine)).astype(np.int32), "share": share[mine].astype(np.float32)}
            source = ColumnDataSource(data)
            drawn = self.figure.hbar(
                y="y", left="start", right="finish", height="height", source=source, fill_alpha="share",
                fill_color=lighter(COLOURS[name], LIGHTER * shade), name=name,
                line_color=PAPER if len(boxes) <= EDGED else None, line_width=0.8,
            )  # fmt: skip
            self.hover([drawn], BOX, "@box")

    def _picked(self) -> None:
        """A frame around each box that is in the source of this name; none to begin with."""
        columns = ("start", "finish", "y", "height", "width")
        source = ColumnDataSource({name: [] for name in columns}, name=PICKED)
        self.figure.hbar(
            y="y", left="start", right="finish", height="height", source=source, fill_color=INK, fill_alpha=0.12,
            line_color=INK, line_width="width",
        )  # fmt: skip

    def _labels(self) -> None:
        """Names in the boxes that have room, whatever part of the step is shown."""
        shown = ColumnDataSource({"x": [], "y": [], "text": [], "ink": []})
        self.figure.text(
            x="x", y="y", text="text", text_color="ink", source=shown, text_align="center", text_baseline="middle",
            text_font_size="11px", text_font=value(FONT),
        )  # fmt: skip
        arguments = {"table": self.table, "shown": shown, "figure": self.figure}
        write = CustomJS(args=arguments, code=_code("step_labels.js"))
        self.figure.x_range.js_on_change("start", write)
        self.figure.x_range.js_on_change("end", write)
        self.figure.js_on_change("inner_width", write)

    def _backgrounds(self, name: str, step: StepLanes, place: _Place) -> None:
        """Bands, and what stands at their left."""
        plot, end = self.figure, self.end
        height, middle = place.heights - 2, place.lanes
        if len(middle):
            plot.hbar(y=middle, left=0, right=end, height=height, color=TINT, line_color=None, level="underlay")
        for lane, at in zip(step.lanes, middle.tolist(), strict=True):
            self.ticks[round(at)] = _short(lane.label)
        holders = [lane.label for lane in step.lanes if lane.device >= 0]
        for label, bottom in zip(holders, place.memory.tolist(), strict=True):
            self.ticks[round(bottom - place.memory_height / 2)] = _short(label)
        if name:
            top = float(middle[0] - place.heights[0] / 2) if len(middle) else HEAD
            said = f"{name}: {formatting.seconds(step.timeline.step_seconds)}"
            plot.add_layout(_label(said, top - 10, is_head=True))

    def _idle(self, step: StepLanes, place: _Place, first: int) -> None:
        """What devices do nothing in, hatched; each says what its next box waited for."""
        boxes, rows = step.boxes, list[tuple[float, float, float, float, int]]()
        for lane, spans in step.idle():
            mine = np.flatnonzero(boxes.lane == lane)
            mine = mine[np.argsort(boxes.start[mine], kind="stable")]
            for begin, end in spans.tolist():
                after = int(np.searchsorted(boxes.start[mine], end * (1 - 1e-12)))
                row = first + int(mine[after]) if after < len(mine) else -1
                rows.append((begin, end, float(place.lanes[lane]), float(place.heights[lane]) - 4, row))
        left, right, y, height, box = (np.array(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
        source = ColumnDataSource({
            "left": np.asarray(left) * self.scale, "right": np.asarray(right) * self.scale, "y": y, "height": height,
            "box": np.asarray(box, np.int32), "long": (np.asarray(right) - np.asarray(left)) * self.scale,
        })  # fmt: skip
        drawn = self.figure.hbar(
            y="y", left="left", right="right", height="height", source=source, fill_alpha=0, line_color=None,
            hatch_pattern="right_diagonal_line", hatch_color=GREY, hatch_alpha=0.6, hatch_weight=0.7, hatch_scale=7,
            name="idle",
        )  # fmt: skip
        self.hover([drawn], [("idle for", "@long{idle}"), ("why", "@box{why}")], "@box", "@long")

    def _path(self, step: StepLanes, place: _Place) -> None:
        """The critical path: a line below its boxes, and from each to the next."""
        boxes = step.boxes.of(step.boxes.critical)
        boxes = boxes.of(np.argsort(boxes.start, kind="stable"))
        low = (place.lanes + place.heights / 2 - 2)[boxes.lane]
        moves = np.flatnonzero(boxes.lane[1:] != boxes.lane[:-1])
        moves = moves[: len(moves) * (len(moves) <= CONNECTED)]
        begin, end = boxes.start * self.scale, boxes.finish * self.scale
        self.figure.segment(x0=begin, x1=end, y0=low, y1=low, line_width=3, line_color=INK, name="path")
        self.figure.segment(
            x0=end[moves], x1=begin[moves + 1], y0=low[moves], y1=low[moves + 1], line_color=INK, line_alpha=0.55,
            name="path",
        )  # fmt: skip

    def _memory(self, step: StepLanes, place: _Place) -> None:
        """A curve per device, all in one scale, and the limits that are near."""
        timeline, plot = step.timeline, self.figure
        devices = [lane.device for lane in step.lanes if lane.device >= 0]
        limits = timeline.problem.cluster.memory_bytes
        tops = [float(each.timeline.peak_bytes.max()) for each in self.steps.values()]
        near = [device for device in devices if limits[device] <= FAR * max(tops)]
        most = max(*tops, *(float(limits[device]) for device in near), 1.0)
        high = (place.memory_height - SAID) / most  # pixels per byte
        for device, bottom in zip(devices, place.memory.tolist(), strict=True):
            edges, held = _thinned(timeline, device, MEMORY_STEPS // (len(devices) * len(self.steps)))
            static = float(timeline.held_bytes[device])
            edges = edges * self.scale
            source = ColumnDataSource({
                "left": edges[:-1], "right": edges[1:], "held": held.astype(np.float32),
                "top": (bottom - high * held).astype(np.float32),
            })  # fmt: skip
            x = np.repeat(edges, 2)[1:-1]
            y = np.repeat(bottom - high * held, 2)
            plot.varea(x=x, y1=y, y2=np.full(len(y), bottom), color=ACTIVATIONS, fill_alpha=0.9, name="activations")
            plot.quad(left=0, right=float(edges[-1]), bottom=bottom, top=bottom - high * static, fill_color=STATE,
                      line_color=None, fill_alpha=0.9, name="state")  # fmt: skip
            drawn = plot.quad(left="left", right="right", top="top", bottom=bottom, source=source, alpha=0)
            limit, peak = float(limits[device]), float(timeline.peak_bytes[device])
            name = timeline.problem.cluster.devices[device].name
            rows = [("memory of", name), ("holds", "@held{size}"), ("of it, all the time", formatting.memory(static)),
                    ("at most", formatting.memory(peak)), ("limit", formatting.memory(limit))]  # fmt: skip
            self.hover([drawn], rows if np.isfinite(limit) else rows[:-1], "@held")
            if device in near:
                self.has_limit, y_limit = True, bottom - high * limit
                plot.segment(x0=0, x1=self.end, y0=y_limit, y1=y_limit, line_color=RED, line_width=1.5,
                             line_dash="dashed", name="limit")  # fmt: skip
            self._peak(place, bottom, peak, limit)

    def _peak(self, place: _Place, bottom: float, peak: float, limit: float) -> None:
        of = f" of {formatting.memory(limit)}" if np.isfinite(limit) else ""
        said = f"memory, peak {formatting.memory(peak)}{of}{': does not fit' if peak > limit else ''}"
        self.figure.add_layout(_label(said, bottom - place.memory_height + SAID / 2, is_strong=peak > limit))

    def hover(self, drawn: list[Any], rows: list[tuple[str, str]], *columns: str) -> None:
        """What is said of glyphs under the pointer; these columns are written by `step_hover.js`."""
        tool = HoverTool(
            renderers=drawn, tooltips=rows, formatters=dict.fromkeys(columns, self.written), visible=False,
            point_policy="follow_mouse", attachment="vertical",
        )  # fmt: skip
        self.figure.add_tools(tool)


def time_unit(seconds: float) -> tuple[float, str]:
    """What to multiply seconds by to draw a step of this length, and the name of the result."""
    return (1.0, "seconds") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")


def _thinned(timeline: Timeline, device: int, most: int) -> tuple[Floats, Floats]:
    """Edges (steps + 1,) and what is held between them (steps,); of each slice of the step the most, for the peaks."""
    times, held = timeline.memory_curve(device)
    step = timeline.step_seconds
    if len(times) > max(most, 1):
        slice_of = np.minimum(times / step * most, most - 1).astype(np.int64)
        first = np.unique(slice_of, return_index=True)[1]
        times, held = times[first], np.maximum.reduceat(held, first)
    return np.append(times, max(step, times[-1])), held


def _label(text: str, y: float, *, is_head: bool = False, is_strong: bool = False) -> Label:
    """Text at the left end of the lanes, wherever the chart is moved to."""
    return Label(
        x=5, x_units="screen", y=y, text=text, text_baseline="middle", text_color=INK, text_font=FONT,
        text_font_size="13px" if is_head else "11px", text_font_style="bold" if is_head or is_strong else "normal",
    )  # fmt: skip


def _short(name: str) -> str:
    """A name as the label of a lane: of a long one both ends."""
    return name if len(name) <= NAME else f"{name[: NAME // 2 - 1]}…{name[-NAME // 2 :]}"


def lighter(colour: str, white: float) -> str:
    """A colour with some white in it."""
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * white):02x}" for part in parts)


def _code(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
