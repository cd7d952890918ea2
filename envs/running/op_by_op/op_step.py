"""OpStep: an op placement, run op by op by one process per device, in the order of the simulation.

Why no process waits for ever. The ops of all processes have one global order, in which each comes after all that it
reads: always the op that is ready and starts first in the simulation (`step_order`). The messages of an op come right
after it in this order. Each process runs its own ops, hands over what it sends and asks for what it receives in this
order, none of which waits; it waits for a message before the first op that reads it. So of all that is not done the
first in the global order can be: what its processes have to do before it is done.

That holds however much a GPU waits for in addition. It may wait after each op until all is done that it was asked for,
as it does when memory is allocated or a kernel is loaded, and send and receive one message after another, only when the
other one does so, too. And a receive takes memory no sooner than it is sent, as in the simulation.

An op's gradients are computed by autograd from its own part of the graph alone (`envs.running.op_by_op.tape`), so that
`.grad` and `.grad_weight` run when the plan says. Weights are updated by Adam where the graph says; of a weight that
several ops read, one device computes the new value, and sends it to the others.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed

from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.clock import Mark, mark, read
from envs.running.given_inputs import GivenInputs
from envs.running.op_by_op.departures import Departures
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.links import Links, Work
from envs.running.op_by_op.op_tasks import OpTask, Tasks, TensorMessage
from envs.running.op_by_op.sent_tensors import SentTensors, TensorOf, sent_tensors
from envs.running.progress import ACTIVITY
from envs.running.running_step import Message, Span, StepRecord
from envs.simulation.simulator import LaidOut
from graphs.algorithms.order import ready_first
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, OpGraph


def step_order(graph: OpGraph, start: Floats) -> list[int]:
    """(ops,) all ops in the global order, by when they start in the simulation, (ops,) seconds."""
    order: list[int] = ready_first(graph.edges, start).tolist()
    return order


class OpStep:
    """The ops of one device (`RunningStep`)."""

    def __init__(
        self,
        program: CapturedProgram,
        laid: LaidOut,
        rank: int,
        device: torch.device,
        adam: Adam = Adam(),  # noqa: B008 - it cannot be changed
    ) -> None:
        """All processes make theirs together; each has the rank of its device in the cluster.

        Raises InputError for a plan that is no op placement, a graph that is not the program's, and what cannot be run
        op by op.
        """
        if laid.expansion is not None:
            raise InputError(
                "only a plan with one device per op, and the whole batch at once, is run op by op; place with --plans "
                "placement"
            )
        graph, self.laid = laid.problem.graph, laid
        self._names = graph.names
        placement = laid.placement[graph.units].tolist()
        if max(placement) >= _processes():
            raise InputError(
                f"the plan places ops on device {max(placement)}, and there are {_processes()} processes; start one "
                "for each device"
            )
        ops = GradientOps(program, graph)
        timeline = laid.simulator().timeline(laid.placement)
        order = step_order(graph, timeline.start)
        self.messages: Sequence[SentTensors] = sent_tensors(ops, placement)
        self._rank, self._device = rank, device
        own = [op for op in order if placement[op] == rank]
        self._made = Tasks(ops, self.messages, own, rank, device, adam)
        self._slots: list[object] = [None] * self._made.slots
        for slot, tensor in self._made.held.items():
            self._slots[slot] = tensor
        self._made.held.clear()  # so that what is replaced is not held any longer
        parcels = [parcel for task in self._made.tasks for parcel in (*task.arrivals, *task.departures)]
        parcels += self._made.at_end
        self._packed = {parcel.tag: parcel.sent.packed for parcel in parcels}
        self._given = GivenInputs(program, self._made.inputs)
        _ask_in_order(self._made.tasks, {op: number for number, op in enumerate(order)})
        self._links = Links(rank, [(sent.source, sent.destination) for sent in self.messages])
        self._departures = Departures(device)
        self._ops: list[tuple[int, Mark, Mark]] = []  # when each ran in this step
        self._moved: list[tuple[TensorMessage, Mark, Mark]] = []  # when each message was sent, or had arrived

    # ---- a step ------------------------------------------------------------------------------------------

    @torch.enable_grad()
    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        """One step; see `RunningStep`."""
        self._take(inputs)
        slots = self._slots
        coming = dict[int, tuple[Work, Tensor]]()
        for task in self._made.tasks:
            self._departures.release()
            for parcel in task.asks:
                coming[parcel.tag] = self._ask(parcel)
            for parcel in task.arrivals:
                self._arrive(parcel, coming.pop(parcel.tag))
            start = mark(self._device)
            ACTIVITY.note(f"op {self._names[task.op]!r}", after=start)
            task.compute(slots)
            self._ops.append((task.op, start, mark(self._device)))
            for parcel in task.departures:
                self._send(parcel)
            for slot in task.frees:
                slots[slot] = None
        arrivals = [parcel for parcel in self._made.at_end if parcel.sent.destination == self._rank]
        for parcel in self._made.at_end:
            if parcel.sent.source == self._rank:
                self._send(parcel)
            else:
                coming[parcel.tag] = self._ask(parcel)
        for parcel in arrivals:
            self._arrive(parcel, coming.pop(parcel.tag))
        ACTIVITY.note("others to receive what it has sent", waits=True, after=mark(self._device))
        self._departures.wait()
        ACTIVITY.note("the end of a step", after=mark(self._device))
        self._note(record)
        for old, new in self._made.renewed:
            slots[old], slots[new] = slots[new], None
        loss = slots[self._made.loss]
        return float(loss) if isinstance(loss, Tensor) else 0.0

    def weights(self) -> Mapping[str, Tensor]:
        """The weights that this process updates."""
        return {name: self._tensor(self._made.weights[name]).detach() for name in self._made.owned}

    def gradients(self) -> Mapping[str, Tensor]:
        """Their gradients in the latest step; without those that had none."""
        found = {name: self._slots[slot] for name, slot in self._made.owned.items()}
        return {name: gradient for name, gradient in found.items() if isinstance(gradient, Tensor)}

    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers that this process changes."""
        return {name: self._tensor(self._made.buffers[name]) for name in sorted(self._made.changed)}

    # ---- messages ----------------------------------------------------------------------------------------

    def _ask(self, parcel: TensorMessage) -> tuple[Work, Tensor]:
        """Begin to receive a message."""
        buffer = self._packed[parcel.tag].buffer(self._device)
        return self._links.receive(buffer, parcel.sent.source, parcel.tag), buffer

    def _arrive(self, parcel: TensorMessage, coming: tuple[Work, Tensor]) -> None:
        """Wait for a message, and put its tensors into their slots."""
        work, buffer = coming
        what = f"what op {self._names[parcel.sent.op]!r} sends from process {parcel.sent.source}"
        ACTIVITY.note(what, waits=True, after=mark(self._device))
        work.wait()
        self._moved.append((parcel, math.nan, mark(self._device)))
        tensors = self._packed[parcel.tag].unpacked(buffer)
        for sent_tensor, slot, tensor in zip(parcel.sent.tensors, parcel.slots, tensors, strict=True):
            is_weight = sent_tensor.of is TensorOf.WEIGHT
            self._slots[slot] = tensor.detach().requires_grad_() if is_weight else tensor

    def _send(self, parcel: TensorMessage) -> None:
        """Begin to send a message."""
        self._moved.append((parcel, mark(self._device), math.nan))
        tensors = list[Tensor]()
        for sent_tensor, slot in zip(parcel.sent.tensors, parcel.slots, strict=True):
            tensor = self._slots[slot]
            if not isinstance(tensor, Tensor):  # a gradient that autograd knows to be zero
                tensor = torch.zeros((), dtype=sent_tensor.layout.dtype, device=self._device).expand(
                    sent_tensor.layout.shape
                )
            tensors.append(tensor)
        buffer = self._packed[parcel.tag].packed(tensors)
        self._departures.add(self._links.send(buffer, parcel.sent.destination, parcel.tag), buffer)

    def _note(self, record: StepRecord | None) -> None:
        """Record when what ran and was sent, but for buffers, which are not simulated."""
        if record is not None:
            record.spans += [Span(*each) for each in read(self._ops, self._device)]
            for parcel, start, finish in read(self._moved, self._device):
                sent, size = parcel.sent, self._packed[parcel.tag].size
                if sent.readers:
                    record.messages.append(Message(sent.op, sent.source, sent.destination, size, start, finish))
        self._ops.clear()
        self._moved.clear()

    # ---- what is given -----------------------------------------------------------------------------------

    def _take(self, inputs: Mapping[int, Tensor]) -> None:
        """Put the inputs into their slots. Raises InputError for a missing one, and one of another shape or type."""
        self._given.check(inputs)
        for leaf, slot in self._made.inputs.items():
            self._slots[slot] = inputs[leaf].detach().to(self._device)

    def _tensor(self, slot: int) -> Tensor:
        tensor = self._slots[slot]
        assert isinstance(tensor, Tensor)
        return tensor


def _ask_in_order(tasks: Sequence[OpTask], place: Mapping[int, int]) -> None:
    """Let tasks ask for messages, each before the first op that comes after what sends it in the global order."""
    arrivals = [parcel for task in tasks for parcel in task.arrivals]
    left = deque(sorted(arrivals, key=lambda each: (place[each.sent.op], each.tag)))
    for task in tasks:
        while left and place[left[0].sent.op] < place[task.op]:
            task.asks.append(left.popleft())


def _processes() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1
