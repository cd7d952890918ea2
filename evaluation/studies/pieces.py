"""The work of a study in pieces that are done once, one after the other, and resume where they were stopped.

A study's folder holds results as JSON files in `pieces/`, and journals of comparisons
(`evaluation.studies.comparisons`). What is there is not done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress_bar

PIECES = "pieces"

Kept = TypeVar("Kept", bound=msgspec.Struct)


@dataclass(frozen=True)
class SavedJob:
    """Work whose result is kept as a JSON file."""

    path: Path
    work: Callable[[], msgspec.Struct]

    @property
    def is_done(self) -> bool:
        """Whether the file exists."""
        return self.path.exists()

    def do(self) -> None:
        """Do all of it, and write the file."""
        result = self.work()
        self.path.parent.mkdir(exist_ok=True)
        write_whole(self.path, msgspec.json.encode(result))


def do_pieces(pieces: Sequence[SavedJob]) -> None:
    """Do the pieces that are not done yet; each keeps what it has saved so far. Raises what a piece raises."""
    left = [piece for piece in pieces if not piece.is_done]
    with progress_bar("study", unit="piece", total=len(pieces), initial=len(pieces) - len(left)) as bar:
        for piece in left:
            bar.set_postfix_str(piece.path.stem)
            piece.do()
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
