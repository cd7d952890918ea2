"""Records for tests of everything that shows them: two problems, three placers, a plan that does not fit; as text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from evaluation.record import Record

LEARNED = "gdp:checkpoint=runs/demo"


def record(
    problem: str, placer: str, step_seconds: float, *, fits: bool = True, seed: int = 0, simulations: int = 1
) -> Record:
    return Record(
        problem=problem,
        placer=placer,
        seed=seed,
        step_seconds=step_seconds,
        fits=fits,
        peak_bytes=(2.0**30, 2.0**29),
        simulations=simulations,
        search_seconds=0.25,
        lower_bound_seconds=1.0,
    )


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
