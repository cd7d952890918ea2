"""Figures as SVG text, as files, and in pages.

Colours are those of Okabe and Ito, which people with any colour vision tell apart. Text and lines take the colour of
the page's text, so that a figure follows the page into dark mode and onto paper.
"""

import html
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from evaluation.drawing.cell_charts import breakable
from evaluation.drawing.shades import INK, INTERACTIVE
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

Paint = Callable[[Figure], None]

TEMPLATE = Path(__file__).resolve().parent / "templates" / "page.html.j2"
BLUE, ORANGE, GREEN, PURPLE, RED = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00"
SKY, YELLOW = "#56b4e9", "#f0e442"
GREY = "#8c929b"  # legible on white and on black

WIDTH = 7.2  # inches
FONT = "DejaVu Sans"  # comes with matplotlib, and is wide: what fits in it fits in the reader's font

INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
STYLE: dict[Any, object] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, and found by the browser's search
    "svg.hashsalt": "placelab",  # same figure, same bytes
    "font.family": FONT,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "grid.alpha": 0.15,
    "text.parse_math": False,  # a dollar in a name is a dollar
    **dict.fromkeys(INKED, INK),
}
# All else as matplotlib comes: a user's own settings, such as those of papers, change no figure.
WHOLE_STYLE = {key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"} | STYLE


def svg(paint: Paint, *, height: float, description: str) -> str:
    """What `paint` draws on a figure of this height (inches), as an SVG element; screen readers say the description."""
    text = drawn(paint, height, "svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))).decode()
    text = text[text.index("<svg ") :].replace("<svg ", f'<svg role="img" aria-label="{html.escape(description)}" ', 1)
    text = text.replace(f"'{FONT}'", "system-ui, sans-serif").replace(INK, "currentColor")
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)  # of groups: never referred to, and not unique in a page
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)  # a hundredth of a point
    return re.sub(r"\s*\n\s*", "\n", text)


def save_figure(
    path: Path, paint: Paint, height: float, *, what: str, name: str, facts: str, charts: Callable[[], list[str]]
) -> None:
    """Write a figure as PNG or SVG, or as a page (HTML) with a heading, a sentence, and charts as SVG elements.

    Raises InputError, which names `what` it is a figure of, for another ending.
    """
    if path.suffix == ".html":
        write_whole(
            path,
            page(TEMPLATE, name=name, title=breakable(name), facts=facts, charts=[Markup(chart) for chart in charts()]),
        )
    elif path.suffix in (".png", ".svg"):
        undated = {"Date": None} if path.suffix == ".svg" else None  # same figure, same bytes
        write_whole(path, drawn(paint, height, path.suffix[1:], facecolor="white", dpi=160, metadata=undated))
    else:
        raise InputError(f"cannot tell what to write to {path}: {what} is *.png, *.svg or *.html")


def page(template: Path, **content: object) -> str:
    """A page (HTML) from its Jinja template, which may extend `frame.html.j2`, the frame of all pages.

    If it holds an interactive chart (`evaluation.drawing.interactive`), it gets the scripts of those, once.
    """
    folders = [template.parent, TEMPLATE.parent]
    environment = Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template(template.name).render(content)
    if INTERACTIVE not in text:
        return text
    from evaluation.drawing.interactive import scripts  # with Bokeh, a second to import

    return text.replace("</head>", f"{scripts(text)}</head>", 1)


def drawn(paint: Paint, height: float, kind: str, **options: Any) -> bytes:
    """The file of a kind that matplotlib knows, with what `paint` draws on a figure of this height (inches)."""
    with mpl.rc_context(WHOLE_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name's emoji becomes a box
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        paint(figure)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
