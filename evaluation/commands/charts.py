"""Charts that commands write: checked before the work whose result they draw."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphs.foundation.extras import check_extra
from graphs.foundation.files import check_writable

CHARTS = (".png", ".svg", ".html")


def check_charts(*files: Path | str | None, inputs: Iterable[object]) -> None:
    """Raise InputError for a chart that cannot be written, before the work whose result it draws."""
    check_writable(*files, endings=CHARTS, inputs=inputs)
    if any(files):
        check_extra("charts", "a drawing")
