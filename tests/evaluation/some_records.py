"""Records for tests of everything that shows them: two problems, three placers, a plan that does not fit; as text."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, RenderableType

from evaluation.records.record import Record

LEARNED = "gdp:checkpoint=runs/demo"


def record(problem: str, placer: str, step_seconds: float, **others: Any) -> Record:
    """A plan that fits; `others` are fields of the record that are to be something else."""
    usual: dict[str, Any] = {
        "seed": 0, "fits": True, "peak_bytes": (2.0**30, 2.0**29), "simulations": 1, "search_seconds": 0.25,
        "lower_bound_seconds": 1.0,
    }  # fmt: skip
    return Record(problem=problem, placer=placer, step_seconds=step_seconds, **(usual | others))


SOME = (
    record("small@two", LEARNED, 2.0),
    record("small@two", "metis", 4.0),
    record("small@two", "annealing", 2.5, simulations=1000),
    record("large@two", LEARNED, 3.0),
    record("large@two", "metis", 1.0, fits=False),
    record("large@two", "annealing", 1.5, simulations=1000),
)


def to_text(renderable: RenderableType, width: int = 120) -> str:
    """Plain text without colours."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, markup=False, highlight=False)
    return capture.get()
