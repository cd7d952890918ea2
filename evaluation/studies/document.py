"""A study's document: Markdown of the template `document.md.j2` in the study's folder, and plots, written together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from evaluation import formatting
from evaluation.drawing.figures import drawn
from evaluation.statistics import Estimate
from evaluation.studies.frame import Against
from graphs.foundation.files import write_whole

Plot = tuple[Callable[[Figure], None], float]  # what paints it, and its height in inches


def save_document(study: str, name: str, folder: Path, plots: Mapping[str, Plot], **context: object) -> Path:
    """Write the document of a study into a folder as `name`, and its plots by their names. Returns the document's path.

    The template is given the `context`, and the functions of this module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for plot, (paint, height) in plots.items():
        write_whole(folder / plot, drawn(paint, height, "png", dpi=90, facecolor="white"))
    write_whole(folder / name, rendered(study, **context))
    return folder / name


def rendered(study: str, **context: object) -> str:
    """The document of a study in Markdown."""
    environment = Environment(  # Markdown, no page
        loader=FileSystemLoader(Path(__file__).parent), autoescape=False, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        each.__name__: each for each in (mean, estimated, against, formatting.seconds, listed, head, row)
    }  # fmt: skip
    environment.globals |= {"plural": plural, "infinity": math.inf}
    return environment.get_template(f"{study}/document.md.j2").render(context)


def head(cells: Sequence[str], words: int = 1) -> str:
    """The first two lines of a table, of whose columns the first `words` hold words, and the others numbers."""
    return f"{row(cells)}\n{row(['---'] * words + ['---:'] * (len(cells) - words))}"


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def mean(given: Estimate) -> str:
    """A value without its interval: "0.853"."""
    return f"{given.value:.3f}" if given.count else "-"


def estimated(given: Estimate, *, digits: int = 3) -> str:
    """A value with its interval, if that is one, in brackets: "0.853 [0.821, 0.887]"."""
    if given.count == 0:
        return "-"
    value, low, high = (f"{each:.{digits}f}" for each in (given.value, given.low, given.high))
    return value + (f" [{low}, {high}]" if given.low < given.high else "")


def against(given: Against | None) -> str:
    """A ratio with its interval, and on how many problems it is faster: "0.853 [0.821, 0.887] 30/38"."""
    if given is None or given.problems == 0:
        return "-"
    return f"{estimated(given.ratio)} {given.wins}/{given.problems}"


def listed(names: Sequence[str]) -> str:
    """In a sentence: "heft, human expert and metis"."""
    plain = [name.replace("_", " ") for name in names]
    return ", ".join(plain[:-1]) + f" and {plain[-1]}"


def plural(count: int, what: str) -> str:
    """As "1 seed", "2 seeds"."""
    return f"{count} {what}{'s' * (count != 1)}"


def across_simulations(axes: Axes, title: str) -> None:
    """What panels of step times by simulations have in common."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title)
    axes.set_xlabel("simulations")
    axes.grid()
