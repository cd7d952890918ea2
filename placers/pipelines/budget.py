"""Spent: how many simulations a planner has made of those that it may make, and whether it is to stop."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from graphs.foundation.interrupts import Interrupts
from graphs.foundation.progress import Bar, progress_bar


@dataclass(eq=False)
class Spent:
    """Simulations, counted one by one; Ctrl-C ends them."""

    budget: int
    interrupts: Interrupts
    bar: Bar
    simulations: int = 0

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.interrupts.requested

    @property
    def left(self) -> int:
        """How many more may be made; 0 after Ctrl-C."""
        return 0 if self.stopped else max(self.budget - self.simulations, 0)

    def said_of_missed(self, names: Sequence[str]) -> str:
        """Why placers were not compared, as the end of a note: Ctrl-C, or no simulations left."""
        if self.stopped:
            return f"stopped before {', '.join(names)} {'were' if len(names) > 1 else 'was'} compared."
        return f"no simulations were left to compare {', '.join(names)}."

    @contextmanager
    def kept(self, count: int) -> Iterator[None]:
        """Inside, so many simulations fewer may be made; they are left for later."""
        self.budget -= count
        try:
            yield
        finally:
            self.budget += count

    def add(self, count: int) -> None:
        """Count simulations."""
        self.simulations += count
        self.bar.update(count)


@contextmanager
def spending(budget: int, what: str) -> Iterator[Spent]:
    """At most `budget` simulations, shown as progress; inside, Ctrl-C asks for the end."""
    with (
        Interrupts() as interrupts,
        progress_bar(what, total=budget, unit="simulation", leave=False, uneven=True) as bar,
    ):
        yield Spent(budget, interrupts, bar)
