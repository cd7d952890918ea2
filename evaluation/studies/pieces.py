"""The runner of a study's work: pieces that are done once, and resume where they were stopped.

A study's folder holds `settings.json`, its size; results as JSON files in `pieces/`; training runs in `runs/`; and
journals of comparisons (`evaluation.studies.comparisons`). What is there is not done again. `provenance.jsonl` says
with what all of it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from evaluation.provenance import Provenance
from graphs.foundation.engine import Killed, Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.items import check_workers, results
from graphs.foundation.progress import Bar, progress_bar

SIZE, PIECES = "settings.json", "pieces"
PROVENANCE = "provenance.jsonl"

Size = TypeVar("Size")
Kept = TypeVar("Kept", bound=msgspec.Struct)


class StudyJob(Protocol):
    """Work; the study's folder shows whether it is done."""

    @property
    def name(self) -> str:
        """What is being done."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""

    def do(self) -> None:
        """Do it, from where it was stopped."""


Some = TypeVar("Some", bound=StudyJob)


@dataclass(frozen=True)
class SavedJob:
    """Work whose result is kept as a JSON file."""

    path: Path
    work: Callable[[], msgspec.Struct]

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem

    @property
    def is_done(self) -> bool:
        """Whether the file exists."""
        return self.path.exists()

    def do(self) -> None:
        """Do all of it, and write the file."""
        result = self.work()
        self.path.parent.mkdir(exist_ok=True)
        write_whole(self.path, msgspec.json.encode(result))


def pieces_done(pieces: Sequence[Some], workers: Workers = 1) -> Generator[Some]:
    """Do the pieces that are not done yet, and yield all: first those done before, then each when it is done.

    A stop ends all workers at once; each keeps what it has saved so far. Raises what a piece raises, and InputError if
    its process ended each time that it was tried, or if workers elsewhere do not write into the study's folder.
    """
    check_workers(workers)
    left = [piece for piece in pieces if not piece.is_done]
    yield from (piece for piece in pieces if piece not in left)
    with (
        progress_bar("study", unit="piece", total=len(pieces), initial=len(pieces) - len(left)) as bar,
        closing(_one_by_one(left, bar) if workers == 1 else _shared(left, workers)) as done,
    ):
        for piece in done:
            bar.update()
            yield piece


def _one_by_one(pieces: Sequence[Some], bar: Bar) -> Generator[Some]:
    for piece in pieces:
        bar.set_postfix_str(piece.name)
        piece.do()
        yield piece


def _shared(pieces: Sequence[Some], workers: Workers) -> Generator[Some]:
    # closed at once, not when the last traceback is collected
    with closing(results(methodcaller("do"), pieces, workers)) as done:
        for piece, result in done:
            if isinstance(result, Killed):
                raise InputError(f"{piece.name}: {result.reason}; the same command resumes")
            if not piece.is_done:
                raise InputError(
                    f"{piece.name} was done, and its result is not here: workers of other machines need the study's "
                    "folder on a file system that all share, and to be started in the same folder as this command"
                )
            yield piece


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
    return _loaded(sorted((out / PIECES).glob("*.json")), kind)


def load_done(jobs: Iterable[SavedJob], kind: type[Kept]) -> list[Kept]:
    """The results of those jobs that are done. Raises InputError for a damaged one."""
    return _loaded([job.path for job in jobs if job.is_done], kind)


def _loaded(paths: Iterable[Path], kind: type[Kept]) -> list[Kept]:
    pieces = []
    for path in paths:
        try:
            pieces.append(msgspec.json.decode(path.read_bytes(), type=kind))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is damaged: {error}; delete it, and the study does it again") from error
    return pieces
