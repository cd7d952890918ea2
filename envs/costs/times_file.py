"""Recorded times: seconds of ops per kind of device, or per device, in a TOML or JSON file that people write.

    {"schema": "placelab.times", "version": 1,
     "ops": [{"name": "layers.0/addmm", "seconds": {"gpu": 1.2e-4, "cpu": 3.1e-3}},
             {"kind": "aten.relu", "flops": 0, "bytes_accessed": 4096, "seconds": {"gpu": 6e-6}},
             {"kind": "aten.add", "seconds": {"gpu": 5e-6}}]}

An entry speaks of the op with its name, or of all ops of its kind with its costs (FLOP and bytes, as `placelab
capture` writes them), or of all ops of its kind. Seconds are by the kind of device, or by a device's name ("gpu:0"),
which counts first. The most specific entry that knows the device holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from envs.costs.op_times import OpCost, Times, is_free, op_costs
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, OpGraph

VERSION = 1
Amount = Annotated[float, msgspec.Meta(ge=0)]
Key = str | OpCost | tuple[str]  # a name, a kind with costs, or a kind


class RecordedOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long an op, or all ops alike, take."""

    seconds: dict[str, Amount]  # kind or name of device -> seconds, without the launch hold after an op
    name: str | None = None
    kind: str | None = None
    flops: Amount | None = None
    bytes_accessed: Amount | None = None

    @property
    def key(self) -> Key | None:
        """What the entry speaks of, or None if that is not said properly."""
        costs = (self.flops, self.bytes_accessed)
        if self.name is not None:
            return self.name if self.kind is None and costs == (None, None) else None
        if self.kind is not None and self.flops is not None and self.bytes_accessed is not None:
            return OpCost(self.kind, self.flops, self.bytes_accessed)
        return (self.kind,) if self.kind is not None and costs == (None, None) else None


class TimesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a file of recorded times holds."""

    schema: Literal["placelab.times"]
    version: int
    ops: list[RecordedOp]


def load_times(path: Path) -> dict[str, Times]:
    """For each kind or name of a device in the file, the times on it.

    Raises InputError, naming the file and the place in it, if it is missing or damaged, or if an entry names
    nothing, both an op and a kind, or what another entry names.
    """
    remedy = "envs/costs/times_file.py shows what such a file holds"
    content = read_document(path, TimesFile, version=VERSION, remedy=remedy)
    first: dict[Key, int] = {}
    tables: dict[str, dict[Key, float]] = {}
    for position, op in enumerate(content.ops):
        key = op.key
        if key is None:
            raise InputError(
                f"{path}: ops[{position}]: expected a name, or a kind, or a kind with both flops and bytes_accessed"
            )
        if key in first:
            raise InputError(f"{path}: ops[{position}] speaks of the same as ops[{first[key]}]; keep one of them")
        first[key] = position
        for kind, seconds in op.seconds.items():
            tables.setdefault(kind, {})[key] = seconds
    return {kind: _Table(table).seconds for kind, table in tables.items()}


class _Table:
    """The times on one kind of device."""

    def __init__(self, seconds_of: dict[Key, float]) -> None:
        self._of = seconds_of

    def seconds(self, graph: OpGraph) -> Floats:
        """(ops,) seconds; NaN for an op that the table does not know and that is not free."""
        free = np.where(is_free(graph), 0.0, np.nan).tolist()
        rows = zip(graph.names, op_costs(graph), free, strict=True)
        return np.array([self._one((name, cost, (cost.kind,)), unknown) for name, cost, unknown in rows])

    def _one(self, keys: tuple[Key, ...], unknown: float) -> float:
        return next((self._of[key] for key in keys if key in self._of), unknown)
