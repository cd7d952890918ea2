"""The work of a study in pieces that are done once, one after the other, and resume where they were stopped.

A study's folder holds `settings.json`, its size; results as JSON files in `pieces/`; training runs in `runs/`; and
journals of comparisons (`evaluation.studies.comparisons`). What is there is not done again. `provenance.jsonl` says
with what all of it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from evaluation.records.provenance import Provenance
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress_bar

SIZE, PIECES = "settings.json", "pieces"
PROVENANCE = "provenance.jsonl"

Size = TypeVar("Size")
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


def keep_size(out: Path, size: object) -> None:
    """Make a study's folder, or resume one. Raises InputError if `out` is of another size."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / SIZE).exists() and load_size(out, type(size)) != size:
        raise InputError(f"{out / SIZE} is of a study of another size than this one; choose another --out")
    write_whole(out / SIZE, msgspec.json.format(msgspec.json.encode(size)))
    _note_provenance(out / PROVENANCE)


def _note_provenance(path: Path) -> None:
    """Add a line on what goes on with a study, unless it is as the last line says."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    line = msgspec.json.encode(Provenance.now())
    if lines[-1:] != [line]:
        write_whole(path, b"\n".join([*lines, line, b""]))


def load_size(out: Path, size: type[Size]) -> Size:
    """The size of the study in a folder. Raises InputError for a folder without one, or with another study."""
    if not (out / SIZE).is_file():
        raise InputError(f"{out} holds no study ({SIZE} is missing)")
    try:
        return msgspec.json.decode((out / SIZE).read_bytes(), type=size)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{out / SIZE} is of another study than this one, or damaged: {error}") from error


def load_pieces(out: Path, kind: type[Kept]) -> list[Kept]:
    """What a study has done so far. Raises InputError for a damaged piece."""
    pieces = []
    for path in sorted((out / PIECES).glob("*.json")):
        try:
            pieces.append(msgspec.json.decode(path.read_bytes(), type=kind))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is damaged: {error}; delete it, and the study does it again") from error
    return pieces
