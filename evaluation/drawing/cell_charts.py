"""The cells of a page's tables: names that may be broken, and small charts of shares and of ratios."""

import math
import re
from collections.abc import Iterable

from markupsafe import Markup, escape

BREAKS = re.compile(r"([,@/._](?=\w))")
CODE = re.compile(r"`([^`]+)`")
FAR = 3.0  # ratios from here on are drawn at the end
ENDS = (4.0, 96.0)  # per cent of a strip's width, of ratio 1 and of the largest


def breakable(text: str) -> Markup:
    """Text whose long words may be broken after commas, dots and the like, and nowhere else unless they must be."""
    return text if isinstance(text, Markup) else Markup(BREAKS.sub(r"\1<wbr>", str(escape(text))))


def coded(text: str) -> Markup:
    """Text in which what stands in backticks is code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def bar(parts: Iterable[tuple[str, float]]) -> Markup:
    """A bar from end to end: (name, share of the whole) of each part; the name is its CSS class, and shown on hover."""
    drawn, begin = [], 0.0
    for name, share in parts:
        if share > 0:
            said = f"{name} {share:.1%}"
            place = f'x="{100 * begin:.2f}%" width="{100 * share:.2f}%"'
            drawn.append(f'<rect class="{escape(name)}" {place} height="14"><title>{escape(said)}</title></rect>')
        begin += share
    return Markup(f'<svg class="bar" height="14" aria-hidden="true">{"".join(drawn)}</svg>')


def key(name: str) -> Markup:
    """The name of a part of bars, with its colour before it."""
    name = escape(name)
    swatch = f'<svg class="key" aria-hidden="true"><rect class="{name}" width="100%" height="100%"/></svg>'
    return Markup(f'<span class="named">{swatch} {name}</span>')


def strip(ratios: Iterable[tuple[str, float]]) -> Markup:
    """A dot for the ratio of each problem, 1 at the left and 3 and beyond at the right; its name is shown on hover."""
    dots = []
    for name, ratio in ratios:
        if not math.isnan(ratio):
            said = escape(f"{name}: {ratio:.2f}")
            dots.append(f'<circle cx="{_place(ratio):.1f}%" cy="9" r="4"><title>{said}</title></circle>')
    axis = "".join(f'<line x1="{_place(mark):.1f}%" x2="{_place(mark):.1f}%" y1="0" y2="18"/>' for mark in (1, 1.5, 2))
    return Markup(f'<svg class="strip" height="18" aria-hidden="true">{axis}{"".join(dots)}</svg>')


def strip_axis() -> Markup:
    """The head of a column of strips."""
    marks = ((1.0, "1"), (1.5, "1.5"), (2.0, "2"), (FAR, "3+"))
    texts = (f'<text x="{_place(at):.1f}%" y="12" text-anchor="middle">{text}</text>' for at, text in marks)
    return Markup(f'<svg class="strip" height="16" aria-hidden="true">{"".join(texts)}</svg>')


def _place(ratio: float) -> float:
    """Per cent of the width; equal factors are equal distances."""
    share = math.log(min(max(ratio, 1.0), FAR)) / math.log(FAR)
    return ENDS[0] + share * (ENDS[1] - ENDS[0])
