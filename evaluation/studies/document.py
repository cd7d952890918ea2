"""A study's document: Markdown of the template `document.md.j2` in the study's folder, and plots, written together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from evaluation.drawing.figures import drawn
from evaluation.records import formatting
from evaluation.studies.frame import cluster_of, graph_of
from graphs.foundation.files import write_whole

Plot = tuple[Callable[[Figure], None], float]  # the function that draws it, and its height in inches


def save_document(study: str, name: str, folder: Path, plots: Mapping[str, Plot], **context: object) -> Path:
    """Write the document of a study into a folder as `name`, and its plots by their names. Returns the document's path.

    The template has the `context`, and may import `macros.md.j2`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for plot, (paint, height) in plots.items():
        write_whole(folder / plot, drawn(paint, height, "png", dpi=90, facecolor="white"))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=False, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"estimated": partial(formatting.interval, digits=3), "seconds": formatting.seconds}
    environment.globals |= {"infinity": math.inf, "graph_of": graph_of, "cluster_of": cluster_of}
    write_whole(folder / name, environment.get_template(f"{study}/document.md.j2").render(context))
    return folder / name
