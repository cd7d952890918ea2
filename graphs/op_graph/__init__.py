"""OpGraph: the operations of one training (or inference) step, their costs and the edges between them."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphs.algorithms.components import connected_components
from graphs.algorithms.order import compressed_rows, is_acyclic, topological_order
from graphs.foundation.errors import InputError
from graphs.notation.described import Described
from graphs.notation.signatures import Signatures
from graphs.op_graph.autograd import Autograd
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.held_tensors import NO_TENSORS, HeldTensors

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)

MOST_FLOPS = 1e24  # of an op: far beyond any machine, and sums of many are still finite
MOST = 1e18  # bytes, or seconds


class Phase(IntEnum):
    """The part of a training step that an op belongs to; each phase only waits for itself and earlier ones."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2
    REFRESH = 3  # further users of an updated weight receive its new value


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of a function in a model's code: the same whenever the model runs (`graphs/capture/function_calls.py`)."""

    module: str  # the path of the module whose code makes the call, "" for the model itself
    function: str  # "linear"
    index: int  # how many calls of this function by this module came before, in the same step


RESIDENT = ("unsent_bytes", "working_bytes")  # what an op occupies in addition to its output, where it runs
RECOMPUTED = ".recompute"  # the end of the kind of a forward op that runs again in the backward pass
SPARSE = ".sparse"  # the end of the kind of a look-up whose table has a sparse gradient


def _no_ints() -> Ints:
    return np.zeros(0, np.int64)


def _no_floats() -> Floats:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A directed acyclic graph of ops, each with one output tensor; arrays are read-only and in op order.

    Optional arrays may be left empty: they are then filled with their neutral value.
    Raises InputError, naming the op, for a cycle, an edge to nowhere, or a cost that is negative, NaN or beyond `MOST`.
    """

    name: str
    names: tuple[str, ...]  # (ops,) unique; module path, then op: "layers.0.cell/addmm"
    kinds: tuple[str, ...]  # (ops,) what the op computes: "aten.addmm"
    flops: Floats  # (ops,) FLOP
    bytes_accessed: Floats  # (ops,) bytes read and written
    output_bytes: Floats  # (ops,) bytes of the output tensor
    edges: Ints  # (edges, 2) producer, consumer
    control: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (edges,) order only, carries nothing
    weights: Floats = field(default_factory=_no_floats)  # (weights,) bytes of each parameter tensor
    weight_uses: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # (uses, 2) op, weight it reads
    phase: Ints = field(default_factory=_no_ints)  # (ops,) a Phase
    mirror: Ints = field(default_factory=_no_ints)  # (ops,) forward op whose device this op shares, or -1
    group: Ints = field(default_factory=_no_ints)  # (ops,) co-location group, or -1
    measured_seconds: Floats = field(default_factory=_no_floats)  # (ops,) as profiled on any device, or NaN
    measured_on: dict[str, Floats] = field(default_factory=dict)  # name or kind of device -> (ops,) seconds, or NaN
    devices: tuple[tuple[str, ...], ...] = ()  # (ops,) names or kinds of devices an op may run on; () anywhere
    transfer_bytes: Floats = field(default_factory=_no_floats)  # (ops,) what a transfer moves, if not output_bytes
    unsent_bytes: Floats = field(default_factory=_no_floats)  # (ops,) of further results, held as long as the output
    working_bytes: Floats = field(default_factory=_no_floats)  # (ops,) of what an op makes and frees while it runs
    edge_bytes: Floats = field(default_factory=_no_floats)  # (edges,) bytes of an edge's own message, or NaN
    calls: tuple[Call | None, ...] = ()  # (ops,) what made each op, if known; () if nothing is known; not of mirrors
    weight_names: tuple[str, ...] = ()  # (weights,) the name of each parameter in its model, if known
    frozen: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (weights,) not trained; empty if all are
    precisions: tuple[str, ...] = ()  # (ops,) in which each multiplies, "bf16"; "" in fp32; () if all do
    weight_precisions: tuple[str, ...] = ()  # (weights,) in which each is kept, likewise (`graphs.op_graph.precision`)
    gradient_precision: str = ""  # of gradients of weights, "fp32", where it is higher than that of the weight
    captured_in: str = ""  # the precision that was asked for (`graphs.transforms.mixed_precision`); "": its model's own
    master_weights: bool = False  # whether optimizers keep a copy in fp32 of each weight in half precision
    described: tuple[Described | None, ...] = ()  # (ops,) each in index notation, if known; () if none is
    batch_law: BatchLaw | None = None  # how many samples a step has, and what does not grow with them, if known
    held: HeldTensors | None = None  # inputs, buffers and constants, if known; plans do not depend on them
    signatures: Signatures | None = None  # the shapes and arguments of ops, if known; not of those with a mirror
    autograd: Autograd | None = None  # of a forward pass: what its backward pass does other than op by op

    def __post_init__(self) -> None:
        for key, neutral in (("phase", 0), ("mirror", -1), ("group", -1), ("measured_seconds", np.nan)):
            if len(getattr(self, key)) == 0:
                object.__setattr__(self, key, np.full(len(self.names), neutral))
        sizes = ("weights", "measured_seconds", "transfer_bytes", *RESIDENT, "edge_bytes")
        for key in (*COSTS, *sizes):
            object.__setattr__(self, key, _frozen(getattr(self, key), np.float64))
        for key in ("devices", "calls", "described", "precisions", "weight_precisions"):
            if not any(getattr(self, key)):
                object.__setattr__(self, key, ())
        for key in RESIDENT:
            if not np.any(getattr(self, key)):
                object.__setattr__(self, key, _frozen([], np.float64))
        if np.isnan(self.edge_bytes).all():
            object.__setattr__(self, "edge_bytes", _frozen([], np.float64))
        frozen = self.frozen if np.any(self.frozen) else np.zeros(0)
        object.__setattr__(self, "frozen", _frozen(frozen, np.bool_))
        measured_on = {key: _frozen(seconds, np.float64) for key, seconds in sorted(self.measured_on.items())}
        object.__setattr__(self, "measured_on", measured_on)
        for key in ("edges", "weight_uses"):
            object.__setattr__(self, key, _frozen(np.reshape(getattr(self, key), (-1, 2)), np.int64))
        for key in ("phase", "mirror", "group"):
            object.__setattr__(self, key, _frozen(getattr(self, key), np.int64))
        control = self.control if len(self.control) else np.zeros(len(self.edges))
        object.__setattr__(self, "control", _frozen(control, np.bool_))
        self._check()

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"OpGraph({self.name!r}, {len(self)} ops, {len(self.edges)} edges, {self.num_units} units)"

    # ---- derived -----------------------------------------------------------------------------------------

    @cached_property
    def topological_order(self) -> Ints:
        """(ops,) ops, each after its producers; ties in op order."""
        return _frozen(topological_order(self.edges, len(self)), np.int64)  # of all ops: a cycle has been refused

    @cached_property
    def topological_position(self) -> Ints:
        """(ops,) the place of each op in that order."""
        return _frozen(np.argsort(self.topological_order), np.int64)

    @cached_property
    def weight_bytes(self) -> Floats:
        """(ops,) bytes of the parameters that each op reads; a shared one counts at every op that reads it."""
        total = np.zeros(len(self))
        np.add.at(total, self.weight_uses[:, 0], self.weights[self.weight_uses[:, 1]])
        return _frozen(total, np.float64)

    @property
    def held_tensors(self) -> HeldTensors:
        """Inputs, buffers and constants; none if they are not known."""
        return NO_TENSORS if self.held is None else self.held

    @cached_property
    def trained_weights(self) -> Floats:
        """(weights,) bytes of each weight that is trained; 0 of one that is frozen."""
        return self.weights if not len(self.frozen) else _frozen(np.where(self.frozen, 0.0, self.weights), np.float64)

    @cached_property
    def has_sparse_gradient(self) -> Bools:
        """(weights,) whether the gradient of each weight holds only the rows that were read: all its users do so."""
        sparse = np.zeros(len(self.weights), np.bool_)
        if not any(kind.endswith(SPARSE) for kind in set(self.kinds)):  # far fewer than uses of weights
            return _frozen(sparse, np.bool_)
        ops, weights = self.weight_uses.T
        sparse[weights] = True
        sparse[weights[[not self.kinds[op].endswith(SPARSE) for op in ops.tolist()]]] = False
        return _frozen(sparse, np.bool_)

    @cached_property
    def sent_bytes(self) -> Floats:
        """(ops,) bytes that a transfer of each output moves: those of the output, unless the graph says otherwise."""
        return self.transfer_bytes if len(self.transfer_bytes) else self.output_bytes

    @cached_property
    def has_message(self) -> Bools:
        """(edges,) whether an edge carries a message of its own, and not the output of its producer."""
        own = ~np.isnan(self.edge_bytes) if len(self.edge_bytes) else np.zeros(len(self.edges), np.bool_)
        return _frozen(own & ~self.control, np.bool_)

    @cached_property
    def carried_bytes(self) -> Floats:
        """(edges,) bytes that cross if the two ends of each edge are on different devices; none for a control edge."""
        return _frozen(np.where(self.control, 0.0, self.moved_bytes[self.edge_output]), np.float64)

    @cached_property
    def edge_output(self) -> Ints:
        """(edges,) what each edge carries: its producer's output, by op, or a message; the k-th is ops + k."""
        numbers = np.where(self.has_message, len(self) - 1 + np.cumsum(self.has_message), self.edges[:, 0])
        return _frozen(numbers, np.int64)

    @cached_property
    def moved_bytes(self) -> Floats:
        """(ops + messages,) bytes that a transfer of each output, and of each message, moves."""
        messages = self.edge_bytes[self.has_message] if len(self.edge_bytes) else _no_floats()
        return _frozen(np.concatenate([self.sent_bytes, messages]), np.float64)

    @cached_property
    def occupied_bytes(self) -> Floats:
        """(ops + messages,) bytes that each output and each copy of it, and the copy of each message, occupies."""
        return _frozen(np.concatenate([self.output_bytes, self.moved_bytes[len(self) :]]), np.float64)

    @cached_property
    def made_bytes(self) -> Floats:
        """(ops + messages,) the same where the op itself has run, with its results that are sent nowhere."""
        if not len(self.unsent_bytes):
            return self.occupied_bytes
        unsent = np.append(self.unsent_bytes, np.zeros(len(self.occupied_bytes) - len(self)))
        return _frozen(self.occupied_bytes + unsent, np.float64)

    @property
    def samples(self) -> int:
        """How many samples a step has; 0 if that is not known."""
        return 0 if self.batch_law is None else self.batch_law.samples

    @cached_property
    def is_training(self) -> bool:
        """Whether the graph holds a whole training step, so that gradients and optimizer state take memory."""
        return bool((self.phase == Phase.UPDATE).any())

    @cached_property
    def units(self) -> Ints:
        """(ops,) the unit of each op: ops tied by `mirror` or `group` form one, and are placed together.

        Units are numbered in the order of their first op.
        """
        ops = np.arange(len(self))
        mirrored = self.mirror >= 0
        grouped = np.flatnonzero(self.group >= 0)
        _, first, which = np.unique(self.group[grouped], return_index=True, return_inverse=True)
        tied = np.concatenate([ops[mirrored], grouped])
        to = np.concatenate([self.mirror[mirrored], grouped[first][which]])
        return _frozen(connected_components(np.stack([tied, to], axis=1), len(self)), np.int64)

    @property
    def num_units(self) -> int:
        """How many decisions a placement of this graph takes."""
        return int(self.units.max(initial=-1)) + 1

    @cached_property
    def successors(self) -> tuple[Ints, Ints]:
        """Compressed rows (offsets (ops + 1,), edge indices (edges,)): the out-edges of each op, by consumer."""
        return compressed_rows(self.edges[:, 0], self.edges[:, 1], len(self))

    @cached_property
    def predecessors(self) -> tuple[Ints, Ints]:
        """Compressed rows (offsets (ops + 1,), edge indices (edges,)): the in-edges of each op, by producer."""
        return compressed_rows(self.edges[:, 1], self.edges[:, 0], len(self))

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change with any op, cost, edge or weight: plans carry it."""
        digest = hashlib.sha256("\n".join((*self.names, *self.kinds)).encode())
        for key in (
            *COSTS, "edges", "control", "weights", "weight_uses", "phase", "mirror", "group", "measured_seconds",
        ):  # fmt: skip
            digest.update(getattr(self, key).tobytes())
        for key in (
            "transfer_bytes",
            "edge_bytes",
            "frozen",
        ):  # where they are empty, fingerprints are as before they existed
            if len(getattr(self, key)):
                digest.update(f"{key} ".encode() + getattr(self, key).tobytes())
        for device, seconds in self.measured_on.items():
            digest.update(f"on {device} ".encode() + seconds.tobytes())
        if self.devices:
            digest.update(repr(self.devices).encode())
        if self.precisions or self.weight_precisions:
            kept_in = self.weight_precisions, self.gradient_precision, self.master_weights
            digest.update(repr((self.precisions, *kept_in)).encode())
        autograd = self.autograd and msgspec.structs.replace(self.autograd, kept_alive=())  # plans do not depend on it
        if autograd and autograd != Autograd():
            digest.update(msgspec.json.encode(autograd))
        return digest.hexdigest()[:16]

    # ---- validation --------------------------------------------------------------------------------------

    def _check(self) -> None:
        ops = len(self.names)
        if ops == 0:
            raise InputError(f"graph {self.name!r} has no ops; a graph needs at least one")
        if len(set(self.names)) < ops:
            [(twice, _)] = Counter(self.names).most_common(1)
            raise InputError(f"graph {self.name!r}: two ops are called {twice!r}; op names must be unique")
        self._check_lengths()
        for key in COSTS:
            self._check_costs(key, getattr(self, key), self.names)
        for key in ("transfer_bytes", *RESIDENT):
            self._check_costs(key, getattr(self, key), self.names)
        self._check_costs("bytes", self.weights, tuple(f"weight {i}" for i in range(len(self.weights))))
        messages = tuple(f"edge {i}" for i in range(len(self.edge_bytes)))
        self._check_costs("measured_seconds", self.measured_seconds, self.names, missing=True)
        self._check_costs("edge_bytes", self.edge_bytes, messages, missing=True)
        for device, seconds in self.measured_on.items():
            self._check_costs(f"measured_seconds on {device!r}", seconds, self.names, missing=True)
        self._check_references()
        if not is_acyclic(self.edges, ops):
            stuck = sorted(set(range(ops)) - set(self.topological_order.tolist()))
            cycle = " -> ".join(self.names[i] for i in _some_cycle(self.edges, stuck))
            raise InputError(f"graph {self.name!r} is cyclic: {cycle}; remove one of these edges")

    def _check_lengths(self) -> None:
        ops = len(self.names)
        per_op = ("kinds", *COSTS, "phase", "mirror", "group", "measured_seconds")
        optional = ("devices", "transfer_bytes", *RESIDENT, "calls", "described", "precisions")
        given = [key for key in optional if len(getattr(self, key))]
        lengths = {key: len(getattr(self, key)) for key in (*per_op, *given)}
        lengths |= {f"measured_seconds on {device!r}": len(seconds) for device, seconds in self.measured_on.items()}
        for key, length in lengths.items():
            if length != ops:
                raise InputError(f"graph {self.name!r}: {key} has {length} entries for {ops} ops")
        if self.batch_law is not None and self.batch_law.knows_ops:
            self._check_law(self.batch_law)
        if self.signatures is not None:
            self.signatures.check(self.name, ops)
        if self.autograd is not None:
            self.autograd.check(self.name, ops, len(self.weights), len(self.held or ()))
        if self.held is not None:
            self.held.check(self.name, ops)
        for key, owners, count in (
            ("control", "edges", len(self.edges)),
            ("edge_bytes", "edges", len(self.edges)),
            ("frozen", "weights", len(self.weights)),
            ("weight_names", "weights", len(self.weights)),
            ("weight_precisions", "weights", len(self.weights)),
        ):
            if len(getattr(self, key)) not in (0, count):
                raise InputError(
                    f"graph {self.name!r}: {key} has {len(getattr(self, key))} entries for {count} {owners}"
                )

    def _check_law(self, law: BatchLaw) -> None:
        for key in COSTS:
            fixed, whole = getattr(law, key), getattr(self, key)
            if len(fixed) != len(self.names):
                raise InputError(
                    f"graph {self.name!r}: its batch law has {len(fixed)} fixed parts of {key} for {len(self)} ops"
                )
            wrong = np.flatnonzero(~((fixed >= 0) & (fixed <= whole)))
            if len(wrong):
                raise InputError(
                    f"graph {self.name!r}: {fixed[wrong[0]]} of {key} of {self.names[wrong[0]]!r} do not grow with the "
                    f"batch, by its law; expected at least 0, and at most its {whole[wrong[0]]}"
                )

    def _check_costs(self, key: str, values: Floats, owners: tuple[str, ...], *, missing: bool = False) -> None:
        most = MOST_FLOPS if key == "flops" else MOST
        bad = np.flatnonzero(~((values >= 0) & (values <= most) | (missing & np.isnan(values))))
        if len(bad):
            raise InputError(
                f"graph {self.name!r}: {key} of {owners[bad[0]]!r} is {values[bad[0]]}; expected a finite number >= 0, "
                f"at most {most:g}"
            )

    def _check_references(self) -> None:
        ops = len(self.names)
        for key, values, low, high in (
            ("edges", self.edges, 0, ops),
            ("mirror", self.mirror, -1, ops),
            ("group", self.group, -1, np.iinfo(np.int64).max),
            ("weight_uses", self.weight_uses[:, 0], 0, ops),
            ("weight_uses", self.weight_uses[:, 1], 0, len(self.weights)),
            ("phase", self.phase, 0, len(Phase)),
        ):
            outside = values[(values < low) | (values >= high)]
            if outside.size:
                raise InputError(
                    f"graph {self.name!r}: {key} names {outside[0]}, which does not exist; expected {low} to {high - 1}"
                )


def _frozen(values: object, dtype: type[Scalar]) -> NDArray[Scalar]:
    array: NDArray[Scalar] = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def _some_cycle(edges: Ints, stuck: list[int]) -> list[int]:
    """A cycle: from an op that never became ready, producer by producer, until one repeats."""
    among = set(stuck)
    producer = {int(v): int(u) for u, v in edges if int(u) in among and int(v) in among}
    path = [stuck[0]]
    while producer[path[-1]] not in path:
        path.append(producer[path[-1]])
    start = producer[path[-1]]
    return [*path[path.index(start) :], start][::-1]
