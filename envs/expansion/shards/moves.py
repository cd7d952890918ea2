"""Moves: ops and edges of a divided graph while they are written, one micro-batch standing for all.

What is said once of an op that runs for every micro-batch is written for each of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role, TensorSlice
from envs.expansion.shards.rings import Ring, write_rings
from graphs.op_graph import Ints


class Place(NamedTuple):
    """Where a further op runs, and for which op."""

    device: int
    origin: int  # op of the given graph
    stage: int
    shard: int


class GraphTemplate:
    """Further ops, and edges between these and the copies that are in the draft. Ops are named by a number of ours."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[tuple[int, int], int] = {}  # first copy and its step -> our number
        self._first: list[int] = []  # in the draft; of further ops -1 until they are added
        self._step: list[int] = []  # from one micro-batch to the next; 0 for what is done once
        self._added: list[tuple[int, Role, Place, TensorSlice | None, float]] = []
        self._edges: dict[tuple[int, int, bool], None] = {}  # each once
        self._alike: dict[tuple[int, int, int, int, int], None] = {}  # edges of all shards of two ops
        self._chains: list[tuple[int, int]] = []  # from each micro-batch to the next of another op
        self._rings: list[Ring] = []
        self._all: list[tuple[int, int, bool]] = []  # from all micro-batches
        self._single: dict[int, list[tuple[int, int, bool]]] = {}  # by micro-batch

    def copy(self, first: int, step: int) -> int:
        """The op whose copy for the first micro-batch is given; `step` copies on there is the next, 0 for no other."""
        key = first, step
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self._first)
            self._first.append(first)
            self._step.append(step)
        return number

    def add(self, role: Role, place: Place, piece: TensorSlice | None, output_bytes: float, *, repeated: bool) -> int:
        """A further op, which takes no time and may hold a piece of a tensor, for every micro-batch or once."""
        number = len(self._first)
        self._first.append(-1)
        self._step.append(int(repeated))
        self._added.append((number, role, place, piece, output_bytes))
        return number

    def all_reduce(
        self, ready: list[int], places: list[Place], output_bytes: float, sums: Sequence[TensorSlice] = (), *,
        repeated: bool,
    ) -> list[int]:  # fmt: skip
        """(members,) ops that end when each member has the sum of all; `ready` end when their parts are there."""
        done = list(range(len(self._first), len(self._first) + len(ready)))
        self._first += [-1] * len(done)
        self._step += [int(repeated)] * len(done)
        devices = tuple(place.device for place in places)
        origin, stage = places[0].origin, places[0].stage
        self._rings.append(Ring(devices, tuple(ready), tuple(done), origin, stage, output_bytes, repeated, tuple(sums)))
        return done

    def is_repeated(self, op: int) -> bool:
        """Whether it runs for every micro-batch."""
        return self._step[op] > 0

    def connect(self, producer: int, consumer: int, *, control: bool = False) -> None:
        """An edge in every micro-batch; what is done once reads the last one."""
        self._edges[producer, consumer, control] = None

    def connect_shards(self, producer: tuple[int, int], consumer: tuple[int, int], count: int) -> None:
        """Edges between shards on the same devices; of both the first copy and the step to the next micro-batch."""
        self._alike[(*producer, *consumer, count)] = None

    def connect_next(self, producer: int, consumer: int) -> None:
        """An edge from every micro-batch to the next one."""
        self._chains.append((producer, consumer))

    def connect_all(self, producer: int, consumer: int, *, control: bool = False) -> None:
        """Edges from all micro-batches to what is done once."""
        self._all.append((producer, consumer, control))

    def connect_one(self, producer: int, consumer: int, micro_batch: int) -> None:
        """An edge from one micro-batch to what is done once."""
        self._single.setdefault(micro_batch, []).append((producer, consumer, False))

    def write(self) -> dict[int, TensorSlice]:
        """Add all of it to the draft; returns what the further ops hold, by their number there."""
        batches = self._draft.layout.micro_batches
        pieces = self._add(batches)
        write_rings(self._draft, self._rings, self._first, self._step)
        first, step = np.array(self._first, np.int64), np.array(self._step, np.int64)
        every, last = np.arange(batches), np.array([batches - 1])

        def written(edges: list[tuple[int, int, bool]], numbers: Ints, shift: int = 0) -> None:
            if not edges or not len(numbers):
                return
            producer, consumer, control = np.array(edges, np.int64).T[:, :, None]
            ends = (first[end] + step[end] * (numbers + more) for end, more in ((producer, 0), (consumer, shift)))
            one, other = (np.broadcast_to(end, (len(edges), len(numbers))).ravel() for end in ends)
            self._draft.connect(one, other, control=np.repeat(control.ravel() > 0, len(numbers)))

        once = [max(self._step[producer], self._step[consumer]) == 0 for producer, consumer, _ in self._edges]
        ends = [self._step[consumer] == 0 for _, consumer, _ in self._edges]
        written([edge for edge, is_once in zip(self._edges, once, strict=True) if is_once], np.zeros(1, np.int64))
        written([edge for edge, is_once, is_end in zip(self._edges, once, ends, strict=True) if is_end > is_once], last)
        written([edge for edge, is_end in zip(self._edges, ends, strict=True) if not is_end], every)
        written([(*edge, False) for edge in self._chains], every[:-1], 1)
        written(self._all, every)
        for micro_batch, edges in self._single.items():
            written(edges, np.array([micro_batch]))
        self._write_alike(batches)
        return pieces

    def _write_alike(self, batches: int) -> None:
        """Edges between shards: of every micro-batch or, to what is done once, of the last one."""
        rows = np.array(list(self._alike), np.int64).reshape(-1, 5)
        for is_once in (False, True):
            first, step, reader, reader_step, count = rows[(rows[:, 3] == 0) == is_once].T
            which = np.repeat(np.arange(len(first)), count)
            shard = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
            for batch in [batches - 1] if is_once else range(batches):
                one = first[which] + shard + step[which] * batch
                self._draft.connect(one, reader[which] + shard + reader_step[which] * batch)

    def _add(self, batches: int) -> dict[int, TensorSlice]:
        if not self._added:
            return {}
        count = np.array([batches if self._step[number] else 1 for number, *_ in self._added])
        numbers = np.cumsum(count) - count
        which = np.repeat(np.arange(len(count)), count)
        micro_batch = np.arange(len(which)) - numbers[which]
        micro_batch[np.repeat([self._step[number] == 0 for number, *_ in self._added], count)] = -1
        places = np.array([place for _, _, place, _, _ in self._added], np.int64)[which]
        ops = self._draft.add(
            len(which), np.array([role for _, role, *_ in self._added])[which], places[:, 0], origin=places[:, 1],
            stage=places[:, 2], replica=places[:, 3], micro_batch=micro_batch,
            output_bytes=np.array([size for *_, size in self._added])[which],
        )  # fmt: skip
        for (number, *_), place in zip(self._added, numbers.tolist(), strict=True):
            self._first[number] = int(ops[place])
        held = ((op, self._added[each][3]) for op, each in zip(ops.tolist(), which.tolist(), strict=True))
        return {op: piece for op, piece in held if piece is not None}
