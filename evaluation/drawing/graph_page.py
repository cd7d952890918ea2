"""A graph as a drawing that is folded by module, to open, search and colour, by Bokeh."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    HoverTool,
    PanTool,
    Range1d,
    SaveTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.glyphs import Quad
from bokeh.models.widgets import Button, Div, Select, TextInput
from bokeh.palettes import cividis
from bokeh.plotting import figure
from numpy.typing import NDArray

from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW
from evaluation.drawing.interactive import chart_html
from evaluation.drawing.module_tree import PASSES, ModuleTree
from evaluation.drawing.shades import INK, LINE, PAPER, SOFT, TINT
from graphs.op_graph import Floats, OpGraph, Phase

Numbers = NDArray[np.int32]
CODE = Path(__file__).resolve().parent / "templates" / "graph.js"
PALETTE = (BLUE, ORANGE, GREEN, SKY, PURPLE, YELLOW, RED, "#7a5195")
HEIGHT = 640  # pixels
FONT = "system-ui, sans-serif"
WIDGET = f".bk-input, .bk-btn {{ color: {INK}; background-color: {PAPER}; border-color: {SOFT}; }}"
# Bokeh's own arrow of a list is black in the dark, too
WIDGET += " select.bk-input { appearance: auto !important; background-image: none !important; }"
HINT = (
    "What runs first is at the left; a long chain continues below. A click on a module opens it, one on the title of "
    "an open module folds it, and one on an op marks its edges. An edge is the thicker the more bytes it carries; of "
    "folded modules it stands for all between them. Drag to move, turn the wheel with Ctrl held to zoom; a search "
    "opens the modules of what it finds."
)
BACKWARD = "The backward pass, below the forward pass, runs back from right to left. "
NAMED = {
    "module": "module", "pass": "pass of the step", "device": "device", "seconds": "time", "flops": "work (FLOP)",
    "bytes": "bytes of outputs",
}  # fmt: skip
COLUMNS = [
    "node", "left", "right", "top", "bottom", "fill", "alpha", "line", "width", "what", "path", "holds", "work", "out",
    "weights", "place",
]  # fmt: skip
NODE = [
    ("what", "@what"), ("name", "@path"), ("holds", "@holds"), ("work", "@work"), ("outputs", "@out"),
    ("parameters", "@weights"), ("where", "@place"),
]  # fmt: skip
EDGE = [("edge", "@said"), ("carries", "@carries")]


def graph_chart(
    graph: OpGraph, modules: Sequence[str], devices: Sequence[str] = (), seconds: Floats | None = None, *,
    named: Sequence[str] = (),
) -> str:  # fmt: skip
    """The graph as an HTML element, folded by module.

    Its colours are those of `modules`, (ops,), of the pass of a training step, of work, or of (ops,) names of devices
    and seconds, if they are given; devices that are `named` have the first colours.
    """
    tree = ModuleTree.of(graph)
    by = {"module": modules, "pass": [PASSES[Phase(min(phase, Phase.UPDATE))] for phase in graph.phase.tolist()]}
    by |= {"device": devices} if len(devices) else {}
    modes = (*by, *(["seconds"] if seconds is not None else []), "flops", "bytes")
    options: list[str | tuple[Any, str]] = [(mode, NAMED[mode]) for mode in modes]
    first = "device" if len(devices) else "module"
    colours = Select(
        title="Colour by",
        value=first,
        options=options,
        width=170,
        stylesheets=[WIDGET],
    )
    search = TextInput(title="Search by name, then Enter", width=220, stylesheets=[WIDGET])
    buttons = [Button(label=label, name=name, width=110, stylesheets=[WIDGET]) for name, label in
               (("whole", "Whole graph"), ("unfold", "Open all"), ("fold", "Fold all"))]  # fmt: skip
    said, key = Div(text="", width=220), Div(text="", sizing_mode="stretch_width")
    plot, sources = _empty()
    tree_data, words = _data(tree, by, seconds, named or sorted(set(devices), key=lambda name: (len(name), name)))
    arguments = {"tree": ColumnDataSource(tree_data), "words": words, "figure": plot, "search": search,
                 "colours": colours, "said": said, "key": key, **sources}  # fmt: skip
    act = CustomJS(args=arguments, code=CODE.read_text(encoding="utf-8"))
    for model, changed in ((search, "value"), (colours, "value"), (plot, "inner_width"), (plot.x_range, "start")):
        model.js_on_change(changed, act)
    plot.js_on_event("tap", act)
    for button in buttons:
        button.js_on_event("button_click", act)
    controls = row(colours, search, *buttons, said, styles={"flex-wrap": "wrap", "align-items": "end"})
    hint = BACKWARD * graph.is_training + HINT
    page = column(controls, key, plot, sizing_mode="stretch_width")
    return chart_html(page, description=f"The ops of {graph.name}, folded by module", hint=hint)


def _empty() -> tuple[figure, dict[str, ColumnDataSource]]:
    """The figure, and the sources of what it shows."""
    wheel, pan = WheelZoomTool(modifiers="ctrl"), PanTool()
    plot = figure(
        sizing_mode="stretch_width", height=HEIGHT, x_range=Range1d(start=0, end=1), y_range=Range1d(start=1, end=0),
        tools="", toolbar_location="above", background_fill_alpha=0, border_fill_alpha=0, outline_line_color=LINE,
    )  # fmt: skip
    plot.add_tools(pan, wheel, ZoomInTool(), ZoomOutTool(), SaveTool())
    plot.toolbar.active_drag, plot.toolbar.active_scroll, plot.toolbar.logo = pan, wheel, None
    plot.axis.visible = plot.grid.visible = False
    names = {
        "frames": COLUMNS, "nodes": COLUMNS, "edges": ["xs", "ys", "width", "colour", "alpha", "said", "carries"],
        "labels": ["x", "y", "text", "ink", "align"],
    }  # fmt: skip
    sources = {each: ColumnDataSource({name: [] for name in columns}, name=each) for each, columns in names.items()}
    frames = _boxes(plot, sources["frames"])
    lines: Any = plot.multi_line(
        xs="xs", ys="ys", line_width="width", line_color="colour", line_alpha="alpha", source=sources["edges"]
    )
    boxes = _boxes(plot, sources["nodes"])
    plot.text(
        x="x", y="y", text="text", text_color="ink", text_align="align", text_baseline="middle",
        text_font_size="11px", text_font=value(FONT), source=sources["labels"],
    )  # fmt: skip
    drawn: list[Any]
    for drawn, tooltips in (([frames, boxes], NODE), ([lines], EDGE)):
        tool = HoverTool(renderers=drawn, tooltips=tooltips, visible=False, point_policy="follow_mouse")
        plot.add_tools(tool)
    return plot, sources


def _boxes(plot: figure, source: ColumnDataSource) -> Any:
    glyph = Quad(
        left="left", right="right", top="top", bottom="bottom", fill_color="fill", fill_alpha="alpha",
        line_color="line", line_width="width", border_radius=4,  # type: ignore[arg-type]
    )  # fmt: skip
    return plot.add_glyph(source, glyph)


def _data(
    tree: ModuleTree, by: dict[str, Sequence[str]], seconds: Floats | None, named: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of all nodes, and what else the drawing needs to know; what modules hold is summed up there."""
    graph, nodes, ops = tree.graph, len(tree), len(tree.graph)
    names, numbers = _numbered(tree.names)
    of_ops = {"flops": graph.flops, "bytes": graph.output_bytes,
              "seconds": np.zeros(ops) if seconds is None else seconds}  # fmt: skip
    data: dict[str, Any] = {
        "parent": tree.parent.astype(np.int32), "layer": tree.layers.astype(np.int32),
        "order": tree.order.astype(np.int32), "name": numbers, "weights": tree.weight_bytes.astype(np.float32),
    }  # fmt: skip
    data |= {name: _filled(np.asarray(each, np.float32), nodes) for name, each in of_ops.items()}
    kinds, of_kind = _numbered(graph.kinds)
    categories, palette = {"kind": kinds}, dict[str, list[str]]()
    data["kind"] = _filled(of_kind, nodes)
    for mode, labels in by.items():
        numbers_of, categories[mode], palette[mode] = coloured(labels, named if mode == "device" else ())
        data[mode] = _filled(numbers_of, nodes)
    words = {
        "ops": ops, "names": names, "modes": ["kind", *by], "categories": categories, "palette": palette | {"kind": []},
        "scale": list(cividis(64)), "timed": seconds is not None, "from": graph.edges[:, 0].astype(np.int32),
        "to": graph.edges[:, 1].astype(np.int32), "carried": graph.carried_bytes.astype(np.float32),
        "ink": INK, "paper": PAPER, "tint": TINT, "edge": SOFT, "columns": COLUMNS, "stacked": graph.is_training,
        "backward": PASSES[Phase.BACKWARD],
    }  # fmt: skip
    return data, words


def coloured(labels: Sequence[str], first: Sequence[str] = ()) -> tuple[Numbers, list[str], list[str]]:
    """(ops,) the number of each label, and by number the distinct labels and their colours; the rarest are one.

    Those that are named `first` have the same colours whatever the labels are. The others are in the order of their
    first mention or, if there are many, the commonest in order of their names.
    """
    common = list(dict.fromkeys([*first, *labels]))
    if len(common) > len(PALETTE):
        common = sorted(label for label, _ in Counter([*first, *labels]).most_common(len(PALETTE)))
        common = sorted(common, key=lambda label: (len(label), label)) if first else common
    known = {label: place for place, label in enumerate(common)}
    numbers = np.array([known.get(label, len(common)) for label in labels], np.int32)
    more = [("other", GREY)] if len(common) in numbers else []
    colours = [*zip(common, PALETTE, strict=False), *more]
    return numbers, [label for label, _ in colours], [colour for _, colour in colours]


def _filled(of_ops: Any, nodes: int) -> Any:
    """(nodes,) with zeros for modules, whose own are summed up."""
    return np.concatenate([of_ops, np.zeros(nodes - len(of_ops), of_ops.dtype)])


def _numbered(names: Sequence[str]) -> tuple[list[str], Numbers]:
    """The distinct names, and the number of each."""
    known: dict[str, int] = {}
    numbers = np.array([known.setdefault(name, len(known)) for name in names], np.int32)
    return list(known), numbers
