"""Charts that answer: Bokeh models as HTML that a page holds, and what a page of such charts needs once.

A chart becomes an element with its legend and its data. `figures.page` adds the scripts and styles, Bokeh's among them,
to a page that has such an element, so that it opens without a network. A chart is drawn in the colours of the reader's
scheme: of its colours those of `shades.DARK` are replaced in the dark.
"""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bokeh.embed import json_item
from bokeh.models import LayoutDOM
from bokeh.plotting import figure
from bokeh.resources import INLINE, Component

from evaluation.drawing.shades import DARK, INTERACTIVE, LINE, SOFT

FOLDER = Path(__file__).resolve().parent / "templates"


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend: a colour, what it means, and the names of the models that its box shows and hides."""

    label: str
    swatch: str  # a CSS class of `charts.css`, or a colour
    models: tuple[str, ...] = ()
    is_shown: bool = True


def chart_html(model: LayoutDOM, *, description: str, legend: Sequence[LegendEntry] = (), hint: str = "") -> str:
    """An HTML element that shows a Bokeh model; screen readers say the description. The hint says how to use it.

    Equal models give equal text. Raises ValueError, as Bokeh does, for a model that is part of a document already.
    """
    entries = "".join(map(_entry, legend))
    shown = f'<div class="legend">{entries}</div>' if entries else ""
    said = f'<p class="note">{html.escape(hint)}</p>' if hint else ""
    data = json.dumps(_renamed(dict(json_item(model))), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'{INTERACTIVE} role="group" aria-label="{html.escape(description)}">{shown}<div class="canvas"></div>'
        f'<script type="application/json">{data}</script>{said}</div>'
    )


def style_axes(plot: figure) -> None:
    """Give all axes of a plot the colours and the small type of the pages."""
    for axis in plot.axis:
        axis.major_label_text_color = axis.axis_label_text_color = SOFT
        axis.axis_line_color = axis.major_tick_line_color = LINE
        axis.minor_tick_line_color = None
        axis.major_label_text_font_size = axis.axis_label_text_font_size = "11px"
        axis.axis_label_text_font_style = "normal"


def scripts(page: str) -> str:
    """Scripts and styles for the charts of a page, to be put into its head."""
    has_widgets = any(f'"name":"{widget}"' in page for widget in ("TextInput", "Select", "Button"))
    own = _own("charts.js").replace("DARK", json.dumps(DARK))
    return f"<style>\n{_own('charts.css')}</style>\n<script>{_bokeh(has_widgets)}</script><script>{own}</script>"


def _entry(entry: LegendEntry) -> str:
    is_colour = entry.swatch.startswith("#")
    swatch = f'<i style="background:{entry.swatch}"></i>' if is_colour else f'<i class="{entry.swatch}"></i>'
    label = html.escape(entry.label)
    if not entry.models:
        return f"<span>{swatch} {label}</span>"
    models, checked = html.escape(" ".join(entry.models)), " checked" if entry.is_shown else ""
    return f'<label><input type="checkbox" data-models="{models}"{checked}>{swatch} {label}</label>'


def _renamed(item: dict[str, Any]) -> dict[str, Any]:
    """The same with models numbered by their first mention: Bokeh counts on from chart to chart."""
    names: dict[str, str] = {}

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: name(each) if key == "id" else walk(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [walk(each) if isinstance(each, dict | list | tuple) else each for each in value]
        return value

    def name(value: str) -> str:
        return names.setdefault(value, f"p{len(names)}")

    doc = walk(item["doc"])
    return {**item, "doc": doc, "root_id": names[item["root_id"]], "target_id": None}


@cache
def _bokeh(has_widgets: bool) -> str:
    """Bokeh's own scripts."""
    components: list[Component] = ["bokeh", "bokeh-widgets"] if has_widgets else ["bokeh"]
    return "\n".join(INLINE.clone(components=components).js_raw)


@cache
def _own(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
