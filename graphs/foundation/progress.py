"""Progress of long work on stderr: a bar on a terminal, and elsewhere, as in a log file, a line now and then."""

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tqdm import tqdm

from graphs.foundation.plain_text import printable

T = TypeVar("T")
if TYPE_CHECKING:
    Bar = tqdm[NoReturn]  # one that is not iterated over, but updated
else:
    Bar = tqdm

EVERY = 15.0  # seconds between lines
LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s after {elapsed}, {remaining} left{postfix}"
UNEVEN = "{desc}: {n_fmt} of {total_fmt} {unit}s after {elapsed}{postfix}"
UNEVEN_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


def progress(of: Collection[T], what: str, *, unit: str, leave: bool = True) -> Iterator[T]:
    """What is in a collection, one after another, with a bar."""
    with progress_bar(what, total=len(of), unit=unit, leave=leave) as bar:
        for each in of:
            yield each
            bar.update()


def progress_bar(
    what: str, *, total: int, unit: str, initial: int = 0, leave: bool = True, hidden: bool = False,
    uneven: bool = False,
) -> Bar:  # fmt: skip
    """A bar to update; without `leave` it disappears at its end.

    Of `uneven` units, of which some take far longer than others, no time is left to say: an estimate would go up.

    Where stderr is no terminal, what takes less than 15 seconds shows nothing; nor does a worker process at all, whose
    parent says how far the whole is, or a process of torchrun's that is not the first.
    """
    hidden = hidden or is_quiet()
    shown: dict[str, Any] = {
        "desc": printable(what),
        "total": total,
        "unit": unit,
        "initial": initial,
        "disable": hidden,
    }
    if sys.stderr.isatty():
        return _Bar(leave=leave, bar_format=UNEVEN_BAR if uneven else None, **shown)
    often: dict[str, Any] = {"miniters": 1, "mininterval": EVERY, "maxinterval": EVERY, "delay": EVERY}
    return _Lines(leave=False, bar_format=UNEVEN if uneven else LINE, **often, **shown)


def is_quiet() -> bool:
    """Whether another process says how far the work of this one is."""
    return parent_process() is not None or int(os.environ.get("RANK", "0")) > 0


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """What cannot be counted: a line now and then that says how long it has taken, unless a bar is shown meanwhile.

    The lines end with how far it is, which may be told to what this yields.
    """
    reached = ""

    def tell(how_far: str) -> None:
        nonlocal reached
        reached = how_far

    if is_quiet():
        yield tell
        return
    done, begin = threading.Event(), time.monotonic()

    def say() -> None:
        while not done.wait(EVERY):
            if not getattr(tqdm, "_instances", ()):
                so_far = ", ".join(filter(None, [f"{time.monotonic() - begin:.0f} s so far", printable(reached)]))
                tqdm.write(f"{printable(what)}: {so_far}", file=sys.stderr)

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield tell
    finally:
        done.set()
        speaker.join()


class _Bar(Bar):
    """A bar whose names are shown, whatever is in them."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """What the bar ends with."""
        super().set_postfix_str(printable(s), refresh=refresh)


class _Lines(_Bar):
    """Whatever would draw the bar again writes a line instead."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:  # noqa: ARG002  # as tqdm calls it
        """Write what is reached so far; an empty message would clear a bar."""
        if msg is None:
            print(self, file=self.fp, flush=True)

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:  # noqa: ARG002
        """What the next line ends with."""
        super().set_postfix_str(s, refresh=False)

    def close(self) -> None:
        """Write where it ends, if anything was written before."""
        if not self.disable and self.last_print_t > self.start_t and self.n > self.last_print_n:
            self.display()
        super().close()
