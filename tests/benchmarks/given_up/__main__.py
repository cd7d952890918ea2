"""What was tried to make simulations cheaper and was given up, measured: `docs/simulator.md` says why."""

from __future__ import annotations

from rich.console import Console

from tests.benchmarks.given_up import early_stop, given_order, retiming
from tests.benchmarks.run import table

if __name__ == "__main__":
    figures = [figure for module in (retiming, early_stop, given_order) for figure in module.measure()]
    Console(width=110).print(table(figures))
