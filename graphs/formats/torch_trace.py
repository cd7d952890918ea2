"""PyTorch's recordings of a step as an op graph: ops as they were called, what they read from each other, their times.

- An op is a call of an operator that is made by no other operator. Views and allocations are no ops: what they take on
  the host counts to the op after them.
- An edge leads from the op that wrote a tensor's storage last to each op that reads it.
- Ops called by autograd are of the backward pass, and tied to the forward op whose sequence number they have; those in
  the first `Optimizer.step` are updates (`graphs.formats.torch_updates`). What follows that is left out. Weights are
  what forward ops read, nothing has written before, and an update changes; all else that is there before the step is
  held (`graphs.op_graph.held_tensors`).
- With a timeline of the profiler an op takes as long as its kernels or, of a run without any, from its start to that of
  the next one on its thread. Without times it has the FLOPs of the products inside, and the bytes of its tensors.
- A timeline alone has no tensors: each op follows the one before it, and nothing is sent.

A collective's output are the bytes that it exchanges. One without a time takes what they take on the cluster's links.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from graphs.formats import name_of
from graphs.formats.chakra_nodes import Collective, NodeType
from graphs.formats.torch_nodes import Tensor, TracedCall, observed_calls, timed_calls, with_times
from graphs.formats.torch_updates import updates_by_weight
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, located
from graphs.op_graph import MOST, MOST_FLOPS, OpGraph, Phase
from graphs.op_graph.held_tensors import HeldTensors

_log = logging.getLogger("placelab")

_STEP = "Optimizer.step#"
_AUTOGRAD = "autograd::engine::evaluate_function"
_OURS = ("Optimizer.", "[pytorch|", "ProfilerStep#", "## ", "DistributedDataParallel.")
_ALLOCATES = re.compile(r"aten::(new_)?empty(_like|_strided|_quantized)?")
_HAS_PRODUCTS = re.compile(r"aten::(_thnn_|_cudnn_|mkldnn_)?(lstm|gru|rnn)|.*attention").match
_COLLECTIVES = {  # by what is in a name without underscores; the first that fits
    "allreduce": Collective.ALL_REDUCE.name, "reducescatter": Collective.REDUCE_SCATTER.name,
    "allgather": Collective.ALL_GATHER.name, "alltoall": Collective.ALL_TO_ALL.name,
    "broadcast": Collective.BROADCAST.name, "scatter": Collective.SCATTER.name, "gather": Collective.GATHER.name,
    "reduce": Collective.REDUCE.name, "send": NodeType.COMM_SEND_NODE.name, "recv": NodeType.COMM_RECV_NODE.name,
}  # fmt: skip
_COMMUNICATES = ("c10d::", "_c10d_functional::", "record_param_comms", "nccl:")


class _Probe(msgspec.Struct, rename={"events": "traceEvents"}):
    schema: str = ""
    nodes: msgspec.Raw = msgspec.Raw()
    events: msgspec.Raw = msgspec.Raw()


def is_torch_trace(path: Path) -> bool:
    """Whether a file is a trace of PyTorch's observer or profiler, perhaps a damaged one."""
    return _probed(path) != (False, False)


def _probed(path: Path) -> tuple[bool, bool]:
    """Whether a file is an observer's trace, and whether it is a profiler's timeline."""
    try:
        found = msgspec.json.decode(read_file(path, ""), type=_Probe)
    except (ValueError, RecursionError):  # the reader of the other formats says what is wrong with it
        return False, False
    is_ours = found.schema.startswith("placelab")
    return bool(found.schema) and not is_ours and bool(bytes(found.nodes)), not is_ours and bool(bytes(found.events))


def load_torch_trace(path: Path, times: Path | None = None) -> OpGraph:
    """The op graph of an observer's trace, with the times of a timeline of the same run, or that of a timeline alone.

    Raises InputError, naming the file, if one is missing or damaged, if both are timelines, or if they are of two runs.
    """
    _, is_timeline = _probed(path)
    if is_timeline and times is not None:
        raise InputError(f"{path} is a timeline, with times of its own; give the trace of an ExecutionTraceObserver")
    calls = timed_calls(path) if is_timeline else observed_calls(path)
    if times is not None:
        with_times(calls, timed_calls(times), path, times)
    with located(path):
        if is_timeline:
            _log.warning(
                "%s is a timeline, which has no tensors: each op follows the one before it, and sends nothing to it",
                name_of(path),
            )
        return updates_by_weight(_Step(name_of(path), calls).graph())


class _Step:
    """The ops of a recorded step, in the order of their calls."""

    def __init__(self, name: str, calls: Sequence[TracedCall]) -> None:
        self.name, self.timed = name, any(call.seconds or call.kernels for call in calls)
        self.calls = {call.id: call for call in calls}
        self.outermost: dict[int, int] = {}  # by each call in an op the op's
        self.context: dict[int, tuple[str, ...]] = {}  # by the id of each call the names of what it is in
        for call in calls:
            self._find(call)
        ids = [call.id for call in calls if self.outermost.get(call.id) == call.id]
        self.inside: dict[int, list[TracedCall]] = {number: [] for number in ids}
        for call in calls:
            if call.id in self.outermost:
                self.inside[self.outermost[call.id]].append(call)
        self.has_kernels = any(call.kernels for call in calls)
        self.has_tensors = any(call.inputs for call in calls)
        ids = self._first_step(ids)
        if {self._phase(number) for number in ids} == {Phase.FORWARD, Phase.BACKWARD}:
            _log.warning("%s has no optimizer step: its weights are not known, and held as inputs are", name)
        ops = [number for number in ids if not self._is_free(self.calls[number])]
        if not ops:
            raise InputError("no operator is called that computes anything")
        self.ops = [self.calls[number] for number in ops]
        self.seconds = self._seconds(ids, set(ops))

    def _find(self, call: TracedCall) -> None:
        """Which op a call is in: ids of calls are larger than those of what they are in."""
        parent = call.parent if call.parent is not None and call.parent < call.id else None
        above = self.calls.get(parent) if parent is not None else None
        self.context[call.id] = (*self.context.get(above.id, ()), above.name) if above else ()
        if above is not None and above.id in self.outermost:
            self.outermost[call.id] = self.outermost[above.id]
        elif call.schema or call.name.startswith(_COMMUNICATES):
            self.outermost[call.id] = call.id

    def _first_step(self, ids: list[int]) -> list[int]:
        """The ops until the end of the first optimizer step."""
        updates = [number for number in ids if self._phase(number) == Phase.UPDATE]
        if not updates:
            return ids
        last = updates[0]
        for number in ids[ids.index(last) :]:
            if self._phase(number) != Phase.UPDATE:
                break
            last = number
        later = sum(number > last for number in updates)
        if later:
            _log.warning("%s: %d ops follow the first optimizer step; they are left out", self.name, ids[-1] - last)
        return ids[: ids.index(last) + 1]

    def _phase(self, number: int) -> Phase:
        around = self.context[number]
        if any(name.startswith(_STEP) for name in around):
            return Phase.UPDATE
        return Phase.BACKWARD if any(name.startswith(_AUTOGRAD) for name in around) else Phase.FORWARD

    def _is_free(self, call: TracedCall) -> bool:
        """Whether a call makes a view, or allocates memory, and nothing else."""
        if any(each.kernels for each in self.inside[call.id]) or _collective(call.name):
            return False
        if not self.has_tensors:
            return self.has_kernels
        return bool(call.outputs) and (_ALLOCATES.fullmatch(call.name) is not None or not _written(call))

    def _seconds(self, ids: Sequence[int], ops: set[int]) -> list[float]:
        """(ops,) seconds, with those of views before them."""
        found, waiting = dict.fromkeys(ids, 0.0), 0.0
        if self.has_kernels:
            return [sum(each.kernels for each in self.inside[op.id]) for op in self.ops]
        following: dict[object, float] = {}
        for number in reversed(ids):
            call = self.calls[number]
            end = call.start + call.seconds
            found[number] = max(following.get(call.thread, end), end) - call.start
            following[call.thread] = call.start
        for number in ids:
            waiting += found[number]
            if number in ops:
                found[number], waiting = waiting, 0.0
        found[self.ops[-1].id] += waiting
        return [found[op.id] for op in self.ops]

    # ---- the graph -------------------------------------------------------------------------------------------------

    def graph(self) -> OpGraph:
        """The op graph."""
        ops = self.ops
        kinds = [_collective(op.name) or op.name.replace("::", ".") for op in ops]
        moved = np.array([bool(_collective(op.name)) for op in ops])
        sizes = [sum(tensor.bytes for tensor in self._made(op)) for op in ops]
        edges, read_first, written = self._edges()
        phase = self._phases(edges)
        weights = [
            storage for storage, readers in read_first.items()
            if any(phase[op] == Phase.FORWARD for op in readers)
            and any(phase[op] == Phase.UPDATE for op in written.get(storage, ()))
        ]  # fmt: skip
        held = [storage for storage in read_first if storage not in set(weights)]
        size_of = {tensor.storage: tensor.bytes for op in ops for tensor in op.read}
        flops, accessed, seconds = self._costs(np.array(sizes), moved)
        in_order = np.array(sorted(edges), np.int64).reshape(-1, 2)
        follows = np.zeros(len(in_order), np.bool_)
        if not self.has_tensors:
            in_order = np.column_stack([np.arange(len(ops) - 1), np.arange(1, len(ops))])
            follows = np.ones(len(in_order), np.bool_)
        return OpGraph(
            self.name, tuple(map(self._name, ops)), tuple(kinds), flops, accessed, np.minimum(sizes, MOST),
            in_order, follows, np.array([size_of[storage] for storage in weights]),
            np.array([(op, place) for place, storage in enumerate(weights)
                      for op in sorted(set(read_first[storage]) | set(written[storage]))], np.int64).reshape(-1, 2),
            np.array(phase), np.array(self._mirrors(phase)), measured_seconds=seconds,
            held=HeldTensors(
                np.array([size_of[storage] for storage in held]),
                np.array([(op, place) for place, each in enumerate(held) for op in read_first[each]], np.int64),
            ) if held else None,
        )  # fmt: skip

    def _name(self, op: TracedCall) -> str:
        """What the user's own code calls what a forward op is in, then the op."""
        named = self.context[op.id] if self._phase(op.id) == Phase.FORWARD else ()
        around = [name for name in named if not name.startswith(_OURS) and "::" not in name]
        return "/".join([*around, f"{op.name.rpartition(':')[2]}#{op.id}"])

    def _made(self, op: TracedCall) -> list[Tensor]:
        """The tensors that an op writes, each once; of a collective the largest that it exchanges."""
        if _collective(op.name):
            every = self._exchanged(op)
            return [max(every, key=lambda tensor: tensor.bytes)] if every else []
        return _tensors_written(op)

    def _exchanged(self, op: TracedCall) -> list[Tensor]:
        return [tensor for each in self.inside[op.id] for tensor in (*each.outputs, *each.read)]

    def _put_in(self, op: TracedCall, size: float) -> float:
        """The bytes that a rank puts into a collective, of which the largest tensor has a size."""
        sizes = [tensor.bytes for tensor in self._exchanged(op) if tensor.bytes > 0]
        return min(sizes, default=size) if _collective(op.name) == Collective.ALL_GATHER.name else size

    def _edges(self) -> tuple[set[tuple[int, int]], dict[int, list[int]], dict[int, list[int]]]:
        """Edges, the readers of each storage that nothing has written before, and the writers of each storage.

        Storages have the numbers of freed ones again, so that a number of Python's own, which no call has made, may
        seem to be what an op has written: those are left out.
        """
        writer, edges, known = dict[int, int](), set[tuple[int, int]](), set[int]()
        first, writers = dict[int, list[int]](), dict[int, list[int]]()
        position, made = {op.id: index for index, op in enumerate(self.ops)}, set[int]()
        for call in (self.calls[number] for number in self.inside if number <= self.ops[-1].id):
            index, outputs = position.get(call.id, -1), {tensor.storage for tensor in call.outputs}
            read = [tensor for tensor in call.read if tensor.elements != 1 or tensor.id in known]
            for storage in dict.fromkeys(tensor.storage for tensor in read) if index >= 0 else ():
                if storage in writer:
                    edges.add((writer[storage], index))
                elif storage not in made:
                    first.setdefault(storage, []).append(index)
            if index < 0 and _ALLOCATES.fullmatch(call.name):
                made |= outputs
                for storage in outputs & writer.keys():
                    del writer[storage]
            for storage in _written(call) if index >= 0 else ():
                writer[storage] = index
                writers.setdefault(storage, []).append(index)
            known |= {tensor.id for tensor in call.outputs}
        return edges, first, writers

    def _phases(self, edges: set[tuple[int, int]]) -> list[Phase]:
        """(ops,) phases; each only waits for itself and earlier ones."""
        phase = [self._phase(op.id) for op in self.ops]
        for producer, consumer in sorted(edges, key=lambda edge: edge[1]):
            phase[consumer] = max(phase[consumer], phase[producer])
        return phase

    def _mirrors(self, phase: Sequence[Phase]) -> list[int]:
        """(ops,) the forward op that each op of the backward pass is tied to; -1 of others."""
        by_sequence, mirror, before = dict[int, int](), [-1] * len(self.ops), -1
        for index, op in enumerate(self.ops):
            if phase[index] == Phase.FORWARD:
                by_sequence |= {call.sequence: index for call in self.inside[op.id] if call.sequence >= 0}
            elif phase[index] == Phase.BACKWARD:
                numbers = [call.sequence for call in self._around(op) if call.sequence in by_sequence]
                before = mirror[index] = by_sequence[numbers[0]] if numbers else before
        return mirror

    def _around(self, op: TracedCall) -> Iterator[TracedCall]:
        """What an op is called in, from the innermost."""
        call: TracedCall | None = op
        while call is not None:
            parent = call.parent if call.parent is not None and call.parent < call.id else None
            call = None if parent is None else self.calls.get(parent)
            if call is not None:
                yield call

    def _costs(self, sizes: Any, moved: Any) -> tuple[Any, Any, Any]:
        """(ops,) FLOP, bytes accessed and seconds, NaN where they follow from these."""
        seconds, none = np.array(self.seconds), np.zeros(len(self.ops))
        sizes = np.array([self._put_in(op, size) for op, size in zip(self.ops, sizes.tolist(), strict=True)])
        if self.timed:
            if not seconds.any():
                raise InputError("no op takes any time; record both files at once")
            accessed = np.where(moved & (seconds == 0), sizes, 0.0)
            return none, accessed, np.where(accessed > 0, np.nan, seconds)
        traffic = [
            sum({each.storage: each.bytes for each in op.read}.values())
            + sum(each.bytes for each in _tensors_written(op))
            for op in self.ops
        ]
        flops = np.array([_flops(self.inside[op.id]) for op in self.ops])
        unknown = sorted(
            {op.name for op, flop in zip(self.ops, flops, strict=True) if not flop and _HAS_PRODUCTS(op.name)}
        )
        if unknown:
            _log.warning("%s: how many FLOP %s take is not known; they count by their bytes", self.name, unknown)
        return flops, np.minimum(np.where(moved, sizes, traffic), MOST), np.full(len(self.ops), np.nan)


def _collective(name: str) -> str:
    """The kind of a collective or message, "" of another op."""
    if not name.startswith(_COMMUNICATES):
        return ""
    plain = name.replace("_", "").lower()
    return next((kind for word, kind in _COLLECTIVES.items() if word in plain), "")


def _written(call: TracedCall) -> set[int]:
    """The storages that a call writes: those that it makes, and those that it changes."""
    read = {tensor.storage for tensor in call.read}
    made = {tensor.storage for tensor in call.outputs} - read
    if call.name.startswith("c10d::") or call.name.endswith("_"):
        made |= {tensor.storage for tensor in call.outputs}
    return made | {tensor.storage for tensor in call.changed}


def _tensors_written(call: TracedCall) -> list[Tensor]:
    """A tensor of each storage that a call writes: of a compiled kernel the last one that it is given."""
    if call.is_compiled:
        return call.read[-1:]
    written = _written(call)
    return list({each.storage: each for each in (*call.outputs, *call.read) if each.storage in written}.values())


def _flops(calls: Sequence[TracedCall]) -> float:
    """The FLOP of the outermost products among calls."""
    import torch  # seconds to import
    from torch.utils.flop_counter import flop_registry

    counted, total = set[int](), 0.0
    for call in calls:
        count = flop_registry.get(getattr(torch.ops.aten, call.name.removeprefix("aten::"), None))
        if call.parent in counted:
            counted.add(call.id)
        elif count is not None and call.name.startswith("aten::"):
            result = call.shapes[0] if len(call.shapes) == 1 else call.shapes
            try:
                total += float(count(*call.positional, out_val=result))
            except Exception:  # arguments that are none of such an operator
                raise InputError(f"{call.name} is called with arguments that it does not take: {call.id}") from None
            counted.add(call.id)
    return min(max(total, 0.0), MOST_FLOPS)
