"""The work of a study in pieces that are done once, one after the other, and resume where they were stopped.

A study's folder holds results as JSON files in `pieces/`, and journals of comparisons
(`evaluation.studies.comparisons`). What is there is not done again.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec

from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress_bar

PIECES = "pieces"
Pieces = Mapping[Path, Callable[[], msgspec.Struct]]  # by the JSON file that keeps a result, what makes it

Kept = TypeVar("Kept", bound=msgspec.Struct)
Made = TypeVar("Made")


def do_pieces(pieces: Pieces) -> None:
    """Do the pieces whose files are not there yet, and write each as it is done. Raises what a piece raises."""
    left = [path for path in pieces if not path.exists()]
    with progress_bar("study", unit="piece", total=len(pieces), initial=len(pieces) - len(left)) as bar:
        for path in left:
            bar.set_postfix_str(path.stem)
            result = pieces[path]()
            path.parent.mkdir(exist_ok=True)
            write_whole(path, msgspec.json.encode(result))
            bar.update()


def load_pieces(out: Path, kind: type[Kept]) -> list[Kept]:
    """What a study has done so far. Raises InputError for a damaged piece."""
    pieces = []
    for path in sorted((out / PIECES).glob("*.json")):
        try:
            pieces.append(msgspec.json.decode(path.read_bytes(), type=kind))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is damaged: {error}; delete it, and the study does it again") from error
    return pieces


class OutOfTimeError(Exception):
    """A piece took longer than it may."""


def within(seconds: float, make: Callable[[], Made]) -> Made | None:
    """What is made, or None if that takes more of the processor's time; of the main thread alone."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return make()
    except OutOfTimeError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


@cache
def placelab_version() -> str:
    """The commit of a checkout, with a "+" if files are changed; else the version that is installed."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=8", "--exclude=*", "--dirty=+"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return described.stdout.strip() or version("placelab")
