"""Charts that commands write: checked before the work whose result they draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphs.foundation.extras import check_extra
from graphs.foundation.files import check_writable

if TYPE_CHECKING:
    from evaluation.commands.arguments import PlanLike
    from evaluation.comparing.simulated_plan import SimulatedPlan

PLAN = ".plan.json"  # the end of the name of a plan file
CHARTS = (".png", ".svg", ".html")


def check_charts(*files: Path | str | None, inputs: Iterable[object]) -> None:
    """Raise InputError for a chart that cannot be written, before the work whose result it draws."""
    check_writable(*files, endings=CHARTS, inputs=inputs)
    if any(files):
        check_extra("charts", "a drawing")


def names_of(plans: Sequence[PlanLike]) -> list[str]:
    """What one plan, or two, are called next to each other: by their files if these differ; one alone by nothing."""
    files = [Path(plan).name.removesuffix(PLAN) if isinstance(plan, str | Path) else "" for plan in plans]
    names = [file or place for file, place in zip(files, ("first plan", "second plan"), strict=False)]
    if len(set(names)) < len(names):
        names = [f"{place}. {name}" for place, name in enumerate(names, start=1)]
    return names if len(names) > 1 else [""]


def draw_steps(names: Sequence[str], simulated: Sequence[SimulatedPlan], path: Path) -> None:
    """The chart of a plan's step, or of two with their names."""
    from evaluation.drawing.timeline_plots import save_steps  # with matplotlib and Bokeh, a second to import

    save_steps({name: each.timeline for name, each in zip(names, simulated, strict=True)}, path)
