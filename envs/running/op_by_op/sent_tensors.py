"""SentTensors: what the ops of a step send each other, when each op has its device and a process of its own runs each.

An op sends at most one message to a device, as it makes at most one transfer to it in the simulator, with all that ops
there read of it:

    op              reader                              what is sent
    X               Y, which reads results of X         these results
    Y.grad          X.grad, X.grad_weight               the gradients of these results
    Y.grad_weight   X.grad_weight                       sums of gradients of weights that both read
    X.update        Y.refresh                           new values of weights that both read

What an op has no use for is not sent, though the simulator, which knows one output per op, counts it: unread outputs,
gradients of integers, weights that the other one does not read. In addition, a buffer that the forward pass changes on
one device, and reads on others, is sent to these after all ops.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from torch.fx import Node

from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.layouts import Packed, TensorLayout
from graphs.foundation.errors import InputError
from graphs.op_graph import SPARSE


class TensorOf(Enum):
    """What a tensor is that is sent."""

    RESULT = auto()
    GRADIENT = auto()  # of a result
    SUM = auto()  # of gradients of a weight
    WEIGHT = auto()  # a new value
    BUFFER = auto()  # a new value


@dataclass(frozen=True)
class SentTensor:
    """One tensor."""

    of: TensorOf
    which: Node | str  # a result, or the name of a weight or a buffer
    layout: TensorLayout


@dataclass(frozen=True)
class SentTensors:
    """What an op sends to a device, in one message."""

    op: int
    source: int  # device
    destination: int  # device
    tensors: tuple[SentTensor, ...]
    readers: tuple[int, ...]  # the ops there that read it; none of a buffer, which is read in the next step

    @property
    def packed(self) -> Packed:
        """How they lie in one buffer."""
        return Packed(tuple(tensor.layout for tensor in self.tensors))


def sent_tensors(ops: GradientOps, placement: Sequence[int]) -> list[SentTensors]:
    """All messages of a step, by the op that sends them and by destination. `placement` is (ops,), a device each.

    Raises InputError for a sparse gradient that ops on several devices add up.
    """
    found = _Found(placement)
    program = ops.program
    for reader, part in enumerate(program.parts):
        for node in part.reads:
            result = SentTensor(TensorOf.RESULT, node, TensorLayout.of_value(node.meta["val"]))
            found.add(program.op_of(node), reader, result)
    for forward, grad in ops.grad.items():
        for node in ops.wanted(forward):
            gradient = SentTensor(TensorOf.GRADIENT, node, TensorLayout.of_gradient(node.meta["val"]))
            made_by = program.op_of(node)
            for of in (ops.grad, ops.grad_weight):
                if made_by in of:
                    found.add(grad, of[made_by], gradient)
    for (forward, name), earlier in ops.added.items():
        total = SentTensor(TensorOf.SUM, name, TensorLayout.of_gradient(program.weights[name]))
        if ops.graph.kinds[earlier].endswith(SPARSE) and placement[earlier] != placement[forward]:
            raise InputError(
                f"weight {name!r} has a sparse gradient, and ops on several devices read it; such a gradient is not "
                "sent between processes: put these ops on one device"
            )
        found.add(ops.grad_weight[earlier], ops.grad_weight[forward], total)
    for forward, refresh in ops.refresh.items():
        for name in program.parts[forward].weights.values():
            if (owner := ops.owner.get(name)) is not None and owner != forward:
                value = SentTensor(TensorOf.WEIGHT, name, TensorLayout.of_value(program.weights[name]))
                found.add(ops.update[owner], refresh, value)
    for op, part in enumerate(program.parts):
        for name in part.updates:
            buffer = SentTensor(TensorOf.BUFFER, name, TensorLayout.of_value(program.buffers[name]))
            for reader, other in enumerate(program.parts):
                if name in other.buffers.values():
                    found.add_after(op, reader, buffer)
    return found.sent()


class _Found:
    """The messages found so far."""

    def __init__(self, placement: Sequence[int]) -> None:
        self._placement = placement
        self._tensors: dict[tuple[bool, int, int], dict[SentTensor, None]] = defaultdict(dict)
        self._readers: dict[tuple[bool, int, int], dict[int, None]] = defaultdict(dict)

    def add(self, op: int, reader: int, tensor: SentTensor) -> None:
        """An op reads a tensor of another one; nothing is sent on a device."""
        if self._placement[op] != self._placement[reader]:
            key = False, op, self._placement[reader]
            self._tensors[key][tensor] = None
            self._readers[key][reader] = None

    def add_after(self, op: int, reader: int, tensor: SentTensor) -> None:
        """An op has changed a buffer that another one will read in the next step."""
        if self._placement[op] != self._placement[reader]:
            self._tensors[True, op, self._placement[reader]][tensor] = None

    def sent(self) -> list[SentTensors]:
        """All of them: those of ops by op and destination, then those of buffers."""
        sent = list[SentTensors]()
        for key in sorted(self._tensors):
            _, op, destination = key
            tensors, readers = tuple(self._tensors[key]), tuple(self._readers[key])
            sent.append(SentTensors(op, self._placement[op], destination, tensors, readers))
        return sent
