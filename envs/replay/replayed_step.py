"""ReplayedStep: the ops of a captured training step on all of their devices, called by one thread in the plan's order.

The order is that of the simulation (`op_step.step_order`), as in `placelab run`, and so are the ops: functions of slots
(`envs.running.op_by_op.op_tasks`), a list of them for each device. Here one thread calls all. What others read is
copied as soon as it is made, in side streams between accelerators, and waited for before the first op that reads it:

    order                   a(0)    b(1)    c(0)                d(1)
    gpu:0                   a       c
    gpu:0 to gpu:1             copy of a
    gpu:1                   b          d                        d reads a

No op of the forward pass reads one of the backward pass, and each of the latter follows from the gradients of outputs.
So a step has two halves, each in the plan's order, between which is the user's own loss.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.side_streams import PendingCopy
from envs.running.captured_program import CapturedProgram
from envs.running.given_inputs import GivenInputs
from envs.running.op_by_op import tape
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.op_step import step_order
from envs.running.op_by_op.op_tasks import OpTask, Tasks
from envs.running.op_by_op.sent_tensors import SentTensor, TensorOf, sent_tensors
from envs.simulation.simulator import LaidOut
from graphs.foundation.errors import InputError
from graphs.op_graph import Call, Phase

_COPY_OF = {TensorOf.RESULT: CopyOf.OUTPUT, TensorOf.GRADIENT: CopyOf.GRADIENT, TensorOf.SUM: CopyOf.GRADIENT}


class CopyMessage(NamedTuple):
    """Tensors that go to a place together."""

    key: Hashable
    slots: tuple[int, ...]  # of the source or, where it arrives, of the destination
    destination: int
    of: CopyOf
    call: Call | None


@dataclass
class OrderedOp:
    """An op in the order of a plan: what arrives before it is computed, and what is sent or freed after it."""

    op: int
    place: int
    compute: tape.Compute
    arrivals: list[CopyMessage]
    departures: list[CopyMessage]
    frees: list[int]


@dataclass
class ReplayedPass:
    """What a forward pass has made, until its backward pass has run."""

    slots: list[tape.Slots]  # of each place
    coming: dict[Hashable, list[PendingCopy | Tensor | None]] = field(default_factory=dict)  # copies under way, by key
    is_over: bool = False


class ReplayedStep:
    """A captured step whose weights, buffers and optimizer are the user's."""

    def __init__(self, program: CapturedProgram, laid: LaidOut, homes: Mapping[str, int], copier: Copier) -> None:
        """`homes`: the place of each weight by its name.

        Raises InputError for a plan that is no op placement, a graph that is not the program's, and what cannot be run
        op by op.
        """
        if laid.expansion is not None:
            raise InputError("only a plan with one device per op, and the whole batch at once, is replayed")
        graph = laid.problem.graph
        self._copier, self._homes, self._program = copier, homes, program
        self._ops = GradientOps(program, graph)
        placement = laid.placement[graph.units].tolist()
        order = step_order(graph, laid.simulator().timeline(laid.placement).start)
        order.sort(key=lambda op: graph.phase[op] != Phase.FORWARD)  # stable
        sent = [each for each in sent_tensors(self._ops, placement) if each.readers]
        messages = [each for each in sent if each.tensors[0].of is not TensorOf.WEIGHT]
        devices = copier.places.devices
        self._made = [
            Tasks(self._ops, messages, [op for op in order if placement[op] == place], place, devices[place], None)
            for place in range(len(laid.problem.cluster))
        ]
        self._first = [[made.held.get(slot) for slot in range(made.slots)] for made in self._made]
        self._calls = graph.calls or (None,) * len(graph)
        of_op = {task.op: (place, task) for place, made in enumerate(self._made) for task in made.tasks}
        ops = {op: self._ordered(*of_op[op]) for op in order}
        self._fetched = self._fetches(ops, of_op)
        is_forward = [graph.phase[op] == Phase.FORWARD for op in order]
        self.forward_ops = [ops[op] for op, is_first in zip(order, is_forward, strict=True) if is_first]
        self.backward_ops = [ops[op] for op in order if graph.phase[op] == Phase.BACKWARD]
        self.given = GivenInputs(program, {leaf for made in self._made for leaf in made.inputs})
        self._changed = {name for made in self._made for name in made.changed}
        self._gradients = {name: (place, slot) for place, made in enumerate(self._made)
                           for name, slot in made.owned.items()}  # fmt: skip

    @property
    def trained(self) -> Sequence[str]:
        """The names of the weights that get gradients."""
        return tuple(self._gradients)

    # ---- the halves of a step --------------------------------------------------------------------------------

    @torch.enable_grad()
    def forward(
        self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: Mapping[int, Tensor]
    ) -> ReplayedPass:
        """The forward pass; buffers are changed as the model changes them. Inputs are by leaf (`GivenInputs`)."""
        run = ReplayedPass([list(first) for first in self._first])
        for place, made in enumerate(self._made):
            slots = run.slots[place]
            for leaf, slot in made.inputs.items():
                slots[slot] = self._local(inputs[leaf].detach(), place)
            for name, slot in made.buffers.items():
                own = self._local(buffers[name].detach(), place)
                slots[slot] = own.clone() if name in self._changed else own  # it may be read in the backward pass
            for name, slot in made.weights.items():
                if self._homes[name] == place:
                    slots[slot] = weights[name].detach().requires_grad_(name in self._ops.trained)
        for name, place, slot in self._fetched:
            run.coming[place, slot] = [
                self._sent(weights[name].detach(), self._homes[name], place, CopyOf.WEIGHT, None)
            ]
        self._call(self.forward_ops, run)
        for place, made in enumerate(self._made):
            new = dict(made.renewed)
            for name in made.changed:
                buffers[name].detach().copy_(run.slots[place][new[made.buffers[name]]])
        self._copier.settle_all()
        return run

    def outputs(self, run: ReplayedPass) -> list[Tensor]:
        """What the model returns, as the forward pass has made it."""
        made = {output: run.slots[place][slot] for place, each in enumerate(self._made)
                for output, slot in each.outputs.items()}  # fmt: skip
        return [made[position] for position in sorted(made)]

    @torch.enable_grad()
    def backward(self, run: ReplayedPass, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of `trained` from those of all outputs, after which nothing is left of the pass."""
        for place, each in enumerate(self._made):
            for output, slot in each.given.items():
                run.slots[place][slot] = gradients[output]
        self._call(self.backward_ops, run)
        found = list[Tensor | None]()
        for name, (place, slot) in self._gradients.items():
            gradient, home = run.slots[place][slot], self._homes[name]
            is_elsewhere = gradient is not None and home != place
            found.append(self._copier.moved(gradient, place, home, CopyOf.GRADIENT, None) if is_elsewhere else gradient)
        run.slots.clear()
        run.is_over = True
        self._copier.settle_all()
        return found

    def _call(self, ops: Sequence[OrderedOp], run: ReplayedPass) -> None:
        for turn in ops:
            slots = run.slots[turn.place]
            for parcel in turn.arrivals:
                for slot, copied in zip(parcel.slots, run.coming.pop(parcel.key), strict=True):
                    slots[slot] = self._received(copied, parcel)
            turn.compute(slots)
            for parcel in turn.departures:
                run.coming[parcel.key] = [
                    self._sent(slots[slot], turn.place, parcel.destination, parcel.of, parcel.call)
                    for slot in parcel.slots
                ]
            for slot in turn.frees:
                slots[slot] = None

    # ---- copies ----------------------------------------------------------------------------------------------

    def _sent(
        self, tensor: Tensor | None, source: int, destination: int, of: CopyOf, call: Call | None
    ) -> PendingCopy | Tensor | None:
        """A copy that is on its way, or is there; None for a gradient that autograd knows to be zero."""
        if tensor is None:
            return None
        if self._copier.runs_aside(tensor, source, destination):
            return self._copier.sent(tensor, source, destination, of, call)
        return self._copier.moved(tensor, source, destination, of, call)

    def _received(self, copied: PendingCopy | Tensor | None, parcel: CopyMessage) -> Tensor | None:
        side = self._copier.side
        there = side.receive(copied) if side is not None and isinstance(copied, PendingCopy) else copied
        assert not isinstance(there, PendingCopy)
        if parcel.of is CopyOf.WEIGHT and there is not None:
            there.requires_grad_(parcel.key in self._trained_copies)
        return there

    def _local(self, given: Tensor, place: int) -> Tensor:
        """An input or a buffer where it is read; these are taken to be on every device when a plan is simulated."""
        places = self._copier.places
        if places.has(given, place):
            return given
        return self._copier.moved(given, places.of(given.device), place, CopyOf.GIVEN, None)

    # ---- the list of calls -----------------------------------------------------------------------------------

    def _ordered(self, place: int, task: OpTask) -> OrderedOp:
        def parcel(message: Any) -> CopyMessage:
            first: SentTensor = message.sent.tensors[0]
            of, call = _COPY_OF[first.of], self._calls[message.sent.op]
            return CopyMessage(message.tag, message.slots, message.sent.destination, of, call)

        arrivals, departures = [*map(parcel, task.arrivals)], [*map(parcel, task.departures)]
        return OrderedOp(task.op, place, task.compute, arrivals, departures, task.frees)

    def _fetches(
        self, ops: Mapping[int, OrderedOp], of_op: Mapping[int, tuple[int, OpTask]]
    ) -> list[tuple[str, int, int]]:
        """The weights that are read where they are not kept: name, place, slot. Their first readers get them."""
        found = dict[tuple[int, int], str]()
        self._trained_copies = set[Hashable]()
        names = [{slot: name for name, slot in made.weights.items()} for made in self._made]
        for op, turn in ops.items():
            place, task = of_op[op]
            for slot in task.reads:
                name = names[place].get(slot)
                if name is None or self._homes[name] == place or (place, slot) in found:
                    continue
                found[place, slot] = name
                turn.arrivals.append(CopyMessage((place, slot), (slot,), place, CopyOf.WEIGHT, None))
                if name in self._ops.trained:
                    self._trained_copies.add((place, slot))
        return [(name, place, slot) for (place, slot), name in found.items()]
