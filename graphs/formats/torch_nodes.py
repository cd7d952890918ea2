"""What PyTorch's recordings hold: calls, within which calls they were made, on which tensors, and how long they took.

Three files have it, each a part: the trace of a `torch.profiler.ExecutionTraceObserver` has tensors and no times, the
timeline of `torch.profiler.profile(...).export_chrome_trace` times and the shapes of inputs, and MLCommons' Chakra
traces (`graphs.formats.chakra`) are made of both. A call has the same number in both of one run: its `rf_id` there, its
"Record function id" here. A kernel belongs to the call whose "External id" it has, or whose launch has the same
"correlation".
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError, located
from graphs.op_graph import MOST

_log = logging.getLogger("placelab")

TENSOR, TENSORS = "Tensor", "GenericList[Tensor"  # the types of values that are tensors, as PyTorch writes them
OBSERVE = (
    "torch.profiler.profile(..., execution_trace_observer=ExecutionTraceObserver().register_callback(FILE)) writes"
)
EXPORT = "torch.profiler.profile(record_shapes=True) and its export_chrome_trace(FILE) write one"
_RUN_ON_GPUS = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_CALLS = ("cpu_op", "user_annotation")
_OPERATOR = re.compile(r"\w+::\w+")  # on a timeline, where autograd's functions are "cpu_op", too
_ITEM_BYTES = {"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2}  # of others 1
_LEAST_LOST, _MOST_LOST = 0.01, 0.5  # of the time of kernels, what is worth a warning, and what is too much
_AGREE = 0.9  # of the calls with the same number in two files, those of the same name, if both are of one run


class Tensor(NamedTuple):
    """A tensor at a call; numbers are given again when memory is used again."""

    id: int
    storage: int
    bytes: float
    elements: int


def tensors_in(values: Sequence[Any], types: Sequence[str]) -> Iterator[Tensor]:
    """Each tensor, [id, storage, offset, elements, bytes of each, device], and those in lists.

    Raises ValueError, TypeError or IndexError for what is none.
    """
    for value, kind in zip(values, types, strict=True):
        if kind.startswith((TENSOR, TENSORS)):
            for tensor in [value] if kind.startswith(TENSOR) else list(value):
                name, storage, _, elements, size = map(int, tensor[:5])
                yield Tensor(name, storage or -name, float(elements * size), elements)


@dataclass
class TracedCall:
    """A call of an operator, or a part of a program that has a name."""

    id: int  # those of later calls are larger
    name: str
    parent: int | None
    number: int = 0  # the same in both files
    schema: str = ""  # of an operator; the name of a compiled kernel; "" of any other part of a program
    sequence: int = -1  # that of the node of autograd which a forward call makes, or which a backward call runs
    inputs: list[list[Tensor]] = field(default_factory=list)  # by argument
    outputs: list[Tensor] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)  # shapes of tensors, values of others
    shapes: list[Any] = field(default_factory=list)  # of outputs
    thread: object = 0
    start: float = 0.0  # seconds
    seconds: float = 0.0  # from start to end, on the host
    kernels: float = 0.0  # seconds of the kernels that it launched itself

    @property
    def read(self) -> list[Tensor]:
        """The tensors among its arguments."""
        return [tensor for each in self.inputs for tensor in each]

    @property
    def is_compiled(self) -> bool:
        """Whether it is a kernel of Triton, which writes to some of its arguments, and does not say to which."""
        return "(" not in self.schema and not self.outputs

    @property
    def changed(self) -> list[Tensor]:
        """The tensors that it may change: by its schema, "aten::add_(Tensor(a!) self, Tensor other)", or all."""
        if self.is_compiled:
            return self.read
        parameters = [each for each in self._parameters if each != "*"]
        pairs = zip(self.inputs, parameters, strict=False)
        return [tensor for each, parameter in pairs if "!" in parameter.partition("=")[0] for tensor in each]

    @property
    def positional(self) -> list[Any]:
        """Its arguments without those that are given by name."""
        parameters = self._parameters
        return self.arguments[: parameters.index("*")] if "*" in parameters else self.arguments

    @property
    def _parameters(self) -> list[str]:
        """Those in the schema, and "*" before those that are given by name."""
        found, depth = [""], 0
        for letter in self.schema.partition("(")[2].rpartition(") ->")[0]:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and not depth:
                found.append("")
            else:
                found[-1] += letter
        return [each.strip() for each in found]


# ---- the observer's trace ------------------------------------------------------------------------------------------


class _Values(msgspec.Struct, frozen=True):
    values: list[Any]
    shapes: list[Any]
    types: list[str]


class _Attribute(msgspec.Struct, frozen=True):
    name: str
    value: int | float | str | None = None


class _Node(msgspec.Struct, frozen=True):
    id: int
    name: str
    inputs: _Values
    outputs: _Values
    ctrl_deps: int
    attrs: list[_Attribute] = []
    cat: str = ""  # of a kernel that chakra_trace_link has put here, which gives calls their times, too
    ts: float = 0.0  # microseconds
    inclusive_dur: float = 0.0


class _ExecutionTrace(msgspec.Struct, frozen=True):
    schema: str
    nodes: list[_Node]


def observed_calls(path: Path) -> list[TracedCall]:
    """The calls in an observer's trace, by id, with times in one that MLCommons' chakra_trace_link has written.

    Raises InputError, naming the file, if it is missing or damaged.
    """
    content = read_document(path, _ExecutionTrace, version=1, remedy=f"{OBSERVE} one")
    with located(path):
        if not content.nodes or len({node.id for node in content.nodes}) < len(content.nodes):
            raise InputError("expected nodes, each with an id of its own")
        calls = {node.id: _observed(node) for node in content.nodes if node.cat not in _RUN_ON_GPUS}
        for node in content.nodes:
            _check_times(node.name, node.ts, node.inclusive_dur)
            if node.cat in _RUN_ON_GPUS and node.ctrl_deps in calls:
                calls[node.ctrl_deps].kernels += node.inclusive_dur / 1e6
        return [calls[number] for number in sorted(calls)]


def _observed(node: _Node) -> TracedCall:
    about = {each.name: each.value for each in node.attrs}
    number, sequence = about.get("rf_id", 0), about.get("seq_id", -1)
    if not isinstance(number, int) or not isinstance(sequence, int):
        raise InputError(f"node {node.name!r} has an rf_id or a seq_id that is no whole number")
    try:
        pairs = zip(node.inputs.values, node.inputs.types, strict=True)
        inputs = [list(tensors_in([value], [kind])) for value, kind in pairs]
        outputs = list(tensors_in(node.outputs.values, node.outputs.types))
        rows = list(zip(node.inputs.values, node.inputs.types, node.inputs.shapes, strict=True))
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"node {node.name!r} has inputs or outputs that are no lists of tensors: {error}") from error
    if any(not 0 <= tensor.bytes <= MOST for each in (*inputs, outputs) for tensor in each):
        raise InputError(f"node {node.name!r} has a tensor whose size makes no sense")
    arguments = [
        shape if kind.startswith(TENSOR) else None if value == "<None>" else value for value, kind, shape in rows
    ]
    schema = about.get("op_schema") or (node.name if about.get("kernel_backend") else "")
    return TracedCall(
        node.id, node.name, node.ctrl_deps, number, str(schema), sequence, inputs, outputs,
        arguments, node.outputs.shapes, start=node.ts / 1e6, seconds=node.inclusive_dur / 1e6,
    )  # fmt: skip


# ---- the profiler's timeline ---------------------------------------------------------------------------------------


class _Event(msgspec.Struct, frozen=True):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0  # microseconds
    dur: float = 0.0
    tid: int | str = 0
    args: dict[str, Any] = {}

    def number(self, *names: str) -> int:
        """The first of some arguments that is there; -1 without."""
        found = next((self.args[name] for name in names if name in self.args), -1)
        return found if isinstance(found, int) else -1


class _Timeline(msgspec.Struct, frozen=True, rename={"events": "traceEvents"}):
    events: list[_Event]


def timed_calls(path: Path) -> list[TracedCall]:
    """The calls on a profiler's timeline, in the order of their starts, with the times of their kernels.

    Raises InputError, naming the file, if it is missing or damaged, or has no calls of operators.
    """
    events = [event for event in read_document(path, _Timeline, version=1, remedy=EXPORT).events if event.ph == "X"]
    with located(path):
        for event in events:
            _check_times(event.name, event.ts, event.dur)
        calls, by_external = list[TracedCall](), dict[int, TracedCall]()
        open_calls: dict[object, list[TracedCall]] = defaultdict(list)
        for event in sorted((each for each in events if each.cat in _CALLS), key=lambda each: (each.ts, -each.dur)):
            stack = open_calls[event.tid]
            while stack and stack[-1].start + stack[-1].seconds <= event.ts / 1e6:
                stack.pop()
            is_operator = _OPERATOR.fullmatch(event.name) or event.args.get("kernel_backend")
            schema = event.name if is_operator else ""
            call = TracedCall(
                len(calls), event.name, stack[-1].id if stack else None, max(event.number("Record function id"), 0),
                schema, event.number("Sequence number"), thread=event.tid,
                start=event.ts / 1e6, seconds=event.dur / 1e6,
            )  # fmt: skip
            if (elements := max(event.number("In msg nelems"), event.number("Out msg nelems"))) > 0:
                size = elements * _ITEM_BYTES.get(str(event.args.get("dtype")), 1)
                call.outputs.append(Tensor(0, -1 - call.id, min(float(size), MOST), elements))
            stack.append(call)
            calls.append(call)
            by_external.setdefault(event.number("External id", "external id"), call)
        by_external.pop(-1, None)
        launched = {each.number("correlation"): each for each in events if each.cat in _LAUNCHES}
        launched.pop(-1, None)
        lost = 0.0
        kernels = [each for each in events if each.cat in _RUN_ON_GPUS]
        for event in kernels:
            launch = launched.get(event.number("correlation"), event)
            numbers = (each.number("External id", "external id") for each in (event, launch))
            if called := next((by_external[number] for number in numbers if number in by_external), None):
                called.kernels += event.dur / 1e6
            else:
                lost += event.dur / 1e6
        _check_lost(path, lost, sum(each.dur for each in kernels) / 1e6)
        if not any(call.schema for call in calls):
            raise InputError(f"no operator is called in this timeline; {EXPORT}")
    return calls


def _check_lost(path: Path, lost: float, every: float) -> None:
    """Warn of kernels that no call launched. Raises InputError if they take most of the time, as in CUDA graphs."""
    if lost > _MOST_LOST * every:
        raise InputError(
            f"kernels of {lost:.3g} of {every:.3g} s were launched by no call that the timeline has; record a whole "
            "step, without CUDA graphs"
        )
    if lost > _LEAST_LOST * every:
        _log.warning("%s: kernels of %.3g of %.3g s were launched by no call that it has; left out", path, lost, every)


def _check_times(name: str, start: float, taken: float) -> None:
    if not (0 <= taken < 1e15 and abs(start) < 1e18):
        raise InputError(f"{name!r} begins at {start} and takes {taken}; expected microseconds")


def with_times(calls: list[TracedCall], timeline: Sequence[TracedCall], what: Path, times: Path) -> None:
    """Give calls, in place, the times of those that have the same numbers on a timeline.

    Raises InputError unless both are of one run.
    """
    by_number = {each.number: each for each in timeline if each.number}
    pairs = [(call, by_number[call.number]) for call in calls if call.number in by_number]
    if sum(call.name == timed.name for call, timed in pairs) < max(_AGREE * len(pairs), 1):
        raise InputError(
            f"{what} and {times} are of two runs: their calls of the same number have other names; record both at "
            f"once: {OBSERVE} the one, and export_chrome_trace the other"
        )
    for call, timed in pairs:
        call.thread, call.start, call.seconds, call.kernels = timed.thread, timed.start, timed.seconds, timed.kernels
