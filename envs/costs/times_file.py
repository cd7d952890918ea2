"""Recorded times: seconds of ops per kind of device, or per device, in a TOML or JSON file that people write.

    {"schema": "placelab.times", "version": 1,
     "ops": [{"name": "layers.0/addmm", "seconds": {"gpu": 1.2e-4, "cpu": 3.1e-3}},
             {"kind": "aten.relu", "flops": 0, "bytes_accessed": 4096, "seconds": {"gpu": 6e-6}},
             {"kind": "aten.add", "seconds": {"gpu": 5e-6}}]}

An entry is about the op with its name, or about all ops of its kind with its costs (FLOP and bytes, as `placelab
capture` writes them), or about all ops of its kind. Seconds are by the kind of device, or by a device's name ("gpu:0"),
which counts first. The most specific entry that knows the device is used.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from envs.costs.op_times import OpCost, is_free, op_costs
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, OpGraph

VERSION = 1
Amount = Annotated[float, msgspec.Meta(ge=0)]
Key = str | OpCost | tuple[str]  # a name, a kind with costs, or a kind
Table = dict[Key, float]  # seconds on one kind of device, or on one device


class RecordedOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long an op, or all ops alike, take."""

    seconds: dict[str, Amount]  # kind or name of device -> seconds, without the launch hold after an op
    name: str | None = None
    kind: str | None = None
    flops: Amount | None = None
    bytes_accessed: Amount | None = None

    @property
    def key(self) -> Key | None:
        """What the entry is about, or None if it does not say that as it must."""
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


def load_times(path: Path) -> dict[str, Table]:
    """For each kind or name of a device in the file, the times on it.

    Raises InputError, naming the file and the place in it, if it is missing or damaged, or if an entry names
    nothing, both an op and a kind, or what another entry names.
    """
    remedy = "envs/costs/times_file.py shows what such a file holds"
    content = read_document(path, TimesFile, version=VERSION, remedy=remedy)
    first: dict[Key, int] = {}
    tables: dict[str, Table] = {}
    for position, op in enumerate(content.ops):
        key = op.key
        if key is None:
            raise InputError(
                f"{path}: ops[{position}]: expected a name, or a kind, or a kind with both flops and bytes_accessed"
            )
        if key in first:
            raise InputError(f"{path}: ops[{position}] is about the same as ops[{first[key]}]; keep one of them")
        first[key] = position
        for kind, seconds in op.seconds.items():
            tables.setdefault(kind, {})[key] = seconds
    return tables


def seconds_in(table: Table, graph: OpGraph) -> Floats:
    """(ops,) seconds of a graph's ops in a table; NaN for an op that it does not know and that is not free."""
    free = np.where(is_free(graph), 0.0, np.nan).tolist()
    found = []
    for name, cost, unknown in zip(graph.names, op_costs(graph), free, strict=True):
        keys: tuple[Key, ...] = (name, cost, (cost.kind,))
        found.append(next((table[key] for key in keys if key in table), unknown))
    return np.array(found)
