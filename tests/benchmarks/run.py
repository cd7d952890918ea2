"""Run benchmarks, say each figure as it arrives, write all of them to `bench.json`, and print them as a table.

`python -m tests.benchmarks.run bench.json` runs all of them, `... bench.json simulator_speed` only that one.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from graphs.foundation.files import write_whole
from tests.benchmarks.figures import Figure

# each has `measure() -> Iterator[Figure]`
BENCHMARKS = (
    "simulator_speed", "expansion_speed", "environment_speed", "environment_share", "search_speed", "command_seconds",
    "train_start", "first_call", "capture_speed", "planner_speed", "planning_speed", "splitting_speed", "items_speed",
)  # fmt: skip


def table(figures: Iterable[Figure]) -> Table:
    """The figures as rows, those that miss their bound marked."""
    rows = Table("what", "measured", "bound", "holds", title="Benchmarks", title_justify="left")
    for figure in figures:
        rows.add_row(figure.name, measured(figure), figure.bound, holds(figure))
    return rows


def measured(figure: Figure) -> str:
    """The value and its unit."""
    return f"{figure.value:,.{2 if figure.value < 10 else 0}f} {figure.unit}".rstrip()


def holds(figure: Figure) -> str:
    """Whether a figure keeps to its bound, if it has one."""
    return "" if not figure.bound else "yes" if figure.holds else "no"


def main(out: Path, names: Sequence[str] = BENCHMARKS) -> int:
    """Measure, show and write; returns how many benchmarks failed, which do not keep the others from being run.

    A figure that misses its bound is no failure: it is marked.
    """
    figures: list[Figure] = []
    failed: list[str] = []
    for number, name in enumerate(names, start=1):
        say(f"{name}, {number} of {len(names)}")
        try:
            for figure in import_module(f"tests.benchmarks.{name}").measure():
                figures.append(figure)
                bound = f" (bound {figure.bound}: {holds(figure)})" if figure.bound else ""
                say(f"  {figure.name}: {measured(figure)}{bound}")
                write_whole(out, msgspec.json.format(msgspec.json.encode(figures)))
        except Exception:
            traceback.print_exc()
            failed.append(name)
    Console(width=120).print(table(figures))
    if failed:
        say(f"failed: {', '.join(failed)}; their figures are missing")
    return len(failed)


def say(line: str) -> None:
    """A line on stderr, at once, also where there is no terminal."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1]), sys.argv[2:] or BENCHMARKS), 1))
