"""A console that takes text: what looks like markup or an emoji in a name is that name, and no control is obeyed."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment

from graphs.foundation.plain_text import printable


class TextConsole(Console):
    """As rich's, but for that."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something, without characters that a terminal would obey."""
        for each in super().render(renderable, options):
            yield each if each.control else Segment(printable(each.text), each.style)


class AsText:
    """Something that is shown as on a `TextConsole`, whatever console it is printed to."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Its segments."""
        yield from _like(console).render(self._shown, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """How wide it is."""
        return Measurement.get(_like(console), options, self._shown)


def _like(console: Console) -> TextConsole:
    return TextConsole(
        file=console.file, width=console.width, force_terminal=console.is_terminal, no_color=console.no_color
    )
