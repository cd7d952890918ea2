"""HeldTensors: tensors other than parameters that exist before a step: inputs, buffers and constants.

Each is held for the whole step, once, by every device with an op that reads it, and sent nowhere: the user's loop holds
the batch, a module its buffers. Quantised weights are buffers, caches of keys and values are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from graphs.algorithms.pairs import ranges, row_offsets
from graphs.foundation.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class HeldTensors:
    """Tensors that ops read and none makes; arrays are read-only."""

    bytes: Floats  # (tensors,)
    uses: Ints  # (uses, 2) op, tensor that it reads; each pair once
    grows: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (tensors,) with the batch; empty if none does
    names: tuple[str, ...] = ()  # (tensors,) of buffers in their module, "" of others; empty if none is known

    def __post_init__(self) -> None:
        grows = self.grows if len(self.grows) else np.zeros(len(self.bytes))
        uses = np.unique(np.reshape(np.asarray(self.uses, np.int64), (-1, 2)), axis=0)
        for key, values, dtype in (
            ("bytes", self.bytes, np.float64),
            ("uses", uses, np.int64),
            ("grows", grows, np.bool_),
        ):
            array = np.array(values, dtype)
            array.flags.writeable = False
            object.__setattr__(self, key, array)

    def __len__(self) -> int:
        return len(self.bytes)

    def check(self, name: str, ops: int) -> None:
        """Raise InputError unless sizes are such, and uses are of ops of a graph and of tensors here."""
        if len(self.grows) != len(self) or len(self.names) not in (0, len(self)):
            raise InputError(f"graph {name!r}: what is held has {len(self)} sizes, and not as many names or marks")
        wrong = np.flatnonzero(~((self.bytes >= 0) & (self.bytes <= 1e18)))
        if len(wrong):
            raise InputError(
                f"graph {name!r}: held tensor {wrong[0]} has {self.bytes[wrong[0]]} bytes; expected a number >= 0"
            )
        for what, column, count in (("op", self.uses[:, 0], ops), ("tensor", self.uses[:, 1], len(self))):
            outside = column[(column < 0) | (column >= count)]
            if len(outside):
                raise InputError(
                    f"graph {name!r}: {what} {outside[0]} of what is held does not exist; there are {count}"
                )

    def of_ops(self, position: Ints) -> HeldTensors:
        """The same for other ops: `position`, (ops,), is where each is now, or -1 if it is gone."""
        kept = self.uses[position[self.uses[:, 0]] >= 0]
        return replace(self, uses=np.column_stack([position[kept[:, 0]], kept[:, 1]]))

    def scaled(self, times: float) -> HeldTensors:
        """The same for a batch that is larger by a factor."""
        return replace(self, bytes=np.where(self.grows, self.bytes * times, self.bytes))

    def with_growth(self, other: HeldTensors) -> HeldTensors:
        """With what grows, as the same model's tensors for another batch say it, if they are as many."""
        return replace(self, grows=self.bytes != other.bytes) if len(self) == len(other) else self

    def of_copies(self, op: Ints, share: Floats) -> HeldTensors:
        """Of copies of ops: (copies,) the op of each, or -1, and the share of the batch of which it ever reads parts.

        A tensor that grows is held in the parts that are read: one for each share.
        """
        begins = row_offsets(self.uses[:, 0], int(op.max(initial=-1)) + 1)
        these = np.flatnonzero(op >= 0)
        count = np.diff(begins)[op[these]]
        copy = np.repeat(these, count)
        tensor = self.uses[ranges(begins[op[these]], count), 1]
        part = np.where(self.grows[tensor], share[copy], 1.0)
        keys, number = np.unique(np.column_stack([tensor, part]), axis=0, return_inverse=True)
        which = keys[:, 0].astype(np.int64)
        names = tuple(self.names[each] for each in which.tolist()) if self.names else ()
        uses = np.column_stack([copy, number.ravel()])
        return HeldTensors(self.bytes[which] * keys[:, 1], uses, self.grows[which], names)


NO_TENSORS = HeldTensors(np.zeros(0), np.zeros((0, 2), np.int64))
