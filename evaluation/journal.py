"""The journal of a comparison: its records, a line each as they come, so that one that was stopped goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from evaluation.record import Record
from graphs.errors import InputError

VERSION = 1


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The first line."""

    schema: Literal["placelab.comparison"] = "placelab.comparison"
    version: int = VERSION
    budgets: dict[str, int]  # placer -> placements it may simulate per problem


@dataclass
class Journal:
    """Records so far, and the file that they are added to, if any."""

    path: Path | None = None
    records: list[Record] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, budgets: Mapping[str, int]) -> Journal:
        """Begin a file, or go on with one. A last line that was cut off by a crash is dropped.

        Raises InputError if the folder does not exist, or the file is no journal or one with other budgets.
        """
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
        if not path.exists():
            path.write_bytes(msgspec.json.encode(Header(budgets=dict(budgets))) + b"\n")
            return cls(path)
        header, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
        try:
            known = msgspec.json.decode(header, type=Header)
            whole = [line for line in lines if line.endswith(b"\n")]
            records = [msgspec.json.decode(line, type=Record) for line in whole]
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is no journal of a comparison: {error}; name another file") from error
        if known.version != VERSION:
            raise InputError(f"{path}: written as version {known.version}, this placelab reads version {VERSION}")
        for placer, budget in budgets.items():
            if known.budgets.get(placer, budget) != budget:
                raise InputError(
                    f"{path} is of a comparison where {placer!r} may simulate {known.budgets[placer]} placements, "
                    f"not {budget}; name another file"
                )
        first = msgspec.json.encode(Header(budgets=known.budgets | dict(budgets))) + b"\n"
        if [header, *lines] != [first, *whole]:  # or else it is left alone: someone may be adding to it
            rewritten = path.with_name(f"{path.name}.new")
            rewritten.write_bytes(first + b"".join(whole))
            rewritten.replace(path)
        return cls(path, records)

    def add(self, record: Record) -> None:
        """Keep one more record."""
        self.records.append(record)
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")
