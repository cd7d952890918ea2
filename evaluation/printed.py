"""Results in Python: `print` shows what the command line shows."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


class Printed(ABC):
    """A result of a verb, as text without colours; 80 columns wide, or as COLUMNS says."""

    @abstractmethod
    def __rich__(self) -> RenderableType:
        """What the command line shows."""

    def __str__(self) -> str:
        from rich.console import Console  # takes a while to import

        console = Console(file=io.StringIO(), no_color=True, force_terminal=False)
        with console.capture() as capture:
            console.print(self.__rich__(), markup=False, highlight=False)
        return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
