"""Results as people read them: on the command line, in rich's consoles and notebooks, and by `print`."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


class Shown(ABC):
    """A result of a verb, whatever console it is printed to."""

    @abstractmethod
    def _shown(self) -> RenderableType:
        """What is shown; text in it is text, and no markup."""

    def __rich__(self) -> RenderableType:
        from evaluation.records.text_console import AsText  # takes a while to import

        return AsText(self._shown())


class Printed(Shown):
    """The same as text without colours, too: 80 columns wide, or as COLUMNS says."""

    def __str__(self) -> str:
        from evaluation.records.text_console import TextConsole  # takes a while to import

        console = TextConsole(file=io.StringIO(), no_color=True, force_terminal=False)
        with console.capture() as capture:
            console.print(self._shown(), highlight=False)
        return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))
