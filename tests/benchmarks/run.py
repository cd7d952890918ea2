"""Run all benchmarks, print the table of the README, and write `bench.json`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from tests.benchmarks import (
    command_seconds,
    environment_share,
    environment_speed,
    first_call,
    given_order,
    retiming,
    search_speed,
    simulator_speed,
)
from tests.benchmarks.figures import Figure

BENCHMARKS: tuple[Callable[[], Iterator[Figure]], ...] = (
    simulator_speed.measure, given_order.measure, retiming.measure, first_call.measure, environment_speed.measure,
    environment_share.measure, search_speed.measure, command_seconds.measure,
)  # fmt: skip


def table(figures: Iterable[Figure]) -> Table:
    """The figures as rows, those that miss their bound marked."""
    rows = Table("what", "measured", "bound", "holds", title="Benchmarks", title_justify="left")
    for figure in figures:
        value = f"{figure.value:,.{2 if figure.value < 10 else 0}f} {figure.unit}".rstrip()
        rows.add_row(figure.name, value, figure.bound, "" if not figure.bound else "yes" if figure.holds else "no")
    return rows


def main(out: Path) -> None:
    """Measure, show and write."""
    figures: list[Figure] = []
    for benchmark in tqdm(BENCHMARKS, desc="benchmarks", unit="benchmark", leave=False):
        figures += benchmark()
    Console(width=110).print(table(figures))
    out.write_bytes(msgspec.json.format(msgspec.json.encode(figures)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
