"""What does items of work: the words of `graphs.foundation.items`, which begins an engine."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Workers: TypeAlias = int | str  # processes of this machine, or the address of a dask scheduler that is there

UNGUARDED = (
    "no worker process could begin: a script that uses several workers must be a file, and do so under "
    "`if __name__ == '__main__':`"
)


@dataclass(frozen=True)
class Killed:
    """What became of an item whose process ended each time before it was done."""

    reason: str  # a sentence


class Engine(Protocol):
    """What does items."""

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """Each item with its result, when it is done. Raises what `do` raises.

        Closing the generator, Ctrl-C and any error give up what is not done yet.
        """
