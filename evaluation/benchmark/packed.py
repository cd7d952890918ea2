"""Records and plans as a repository keeps them: lines of JSON, compressed, in which an order of ops takes little room.

    {"schema": "placelab.packed", "version": 1}
    {"entry": {"record": ..., "devices": ...}, "sequence": [0, 1, 1, 5, -3], "ties": [2]}

Only which number is smaller counts in an order, and ops that follow one another in a graph mostly run one after the
other. So a line has the ops in their order, each as its distance from the one before, and where two have the same
number. What is read back are ranks: a plan of the same time, about a tenth of the size.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from evaluation.records.journal import JournalEntry, plans
from graphs.foundation.documents import check_version, read_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from graphs.op_graph import Ints

VERSION = 1


class PackedHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line; a journal that was only compressed has its own."""

    schema: Literal["placelab.packed", "placelab.comparison"]
    version: int


class PackedEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A record and its plan."""

    entry: JournalEntry  # without its order, where that is numbers
    sequence: tuple[int, ...] = ()  # ops or units in their order, each as its distance from the one before
    ties: tuple[int, ...] = ()  # places there, likewise, whose number is that of the place before

    @classmethod
    def of(cls, entry: JournalEntry) -> PackedEntry:
        """The same plan, in little room."""
        if isinstance(entry.order, str):
            return cls(entry=entry)
        numbers = np.array(entry.order)
        sequence = np.argsort(numbers, kind="stable")
        ties = np.flatnonzero(np.diff(numbers[sequence]) == 0) + 1
        return cls(entry=replace(entry, order=""), sequence=_distances(sequence), ties=_distances(ties))

    def unpacked(self) -> JournalEntry:
        """The entry, with the rank of each op or unit as its order. Raises ValueError for what is no sequence."""
        if not self.sequence:
            return self.entry
        sequence = np.cumsum(self.sequence)
        if not np.array_equal(np.sort(sequence), np.arange(len(sequence))):
            raise ValueError("its sequence does not name each op once")
        ties = np.cumsum(self.ties, dtype=np.int64)
        if len(ties) and not (ties.min() > 0 and ties.max() < len(sequence)):
            raise ValueError("its ties are none of its sequence")
        larger = np.ones(len(sequence))
        larger[0] = 0
        larger[ties] = 0
        ranks = np.empty(len(sequence))
        ranks[sequence] = np.cumsum(larger)
        return replace(self.entry, order=tuple(ranks.tolist()))


def save_packed(path: Path, entries: Iterable[JournalEntry]) -> None:
    """Write entries; equal ones are equal files."""
    lines = [msgspec.json.encode(PackedHeader(schema="placelab.packed", version=VERSION))]
    lines += [msgspec.json.encode(PackedEntry.of(entry)) for entry in entries]
    write_whole(path, gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0))


def load_packed(path: Path) -> list[JournalEntry]:
    """What `save_packed` wrote, or a compressed journal, as the first submissions were kept.

    Raises InputError, naming the file, if it is missing, damaged, or of another version.
    """
    first, *lines = read_file(path, "`git checkout` restores it").splitlines() or [b""]
    try:
        header = msgspec.json.decode(first, type=PackedHeader)
        if header.schema != "placelab.packed":
            return plans(path)
        with located(path):
            check_version(header.version, [VERSION])
        return [msgspec.json.decode(line, type=PackedEntry).unpacked() for line in lines]
    except (ValueError, RecursionError) as error:  # no JSON, no entry, no text, or brackets within brackets
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: {error}; `git checkout {path}` restores it") from error


def _distances(numbers: Ints) -> tuple[int, ...]:
    """Each number's distance from the one before, the first one's from zero."""
    return tuple(np.diff(numbers, prepend=0).tolist())
