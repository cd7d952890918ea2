"""Tasks: what one process does in a step, op by op, in the order of the simulation.

wait for the messages that nobody here has read before -> compute -> send what others read -> let go of what was
read for the last time
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.fx import Node

from envs.running.adam import Adam, AdamUpdate
from envs.running.op_by_op import tape
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.sent_tensors import SentTensor, SentTensors, TensorOf
from envs.running.program_part import ProgramPart
from graphs.op_graph import RECOMPUTED, Phase


@dataclass(frozen=True)
class TensorMessage:
    """A message, and the slots that its tensors come from, or go to."""

    sent: SentTensors
    tag: int
    slots: tuple[int, ...]


@dataclass
class OpTask:
    """One op."""

    op: int
    compute: tape.Compute
    arrivals: list[TensorMessage]
    departures: list[TensorMessage]
    reads: list[int]  # slots
    makes: list[int]  # slots
    asks: list[TensorMessage] = field(default_factory=list)
    """Messages that it has to ask for, of which the first reader may be itself or a later op."""
    frees: list[int] = field(default_factory=list)  # slots whose tensors nobody will read any more


class Tasks:
    """The tasks of one process, and its slots."""

    def __init__(
        self, ops: GradientOps, messages: Sequence[SentTensors], order: Sequence[int], rank: int, device: torch.device,
        adam: Adam | None,
    ) -> None:  # fmt: skip
        """`order` are the ops of the process.

        Without `adam` the step is part of a loop, in which others update weights: these and the buffers are put into
        their slots before each step. In place of the loss there are the outputs that it reads, and their gradients.
        """
        self.ops, self.rank, self.device, self.adam = ops, rank, device, adam
        self._slot: dict[Hashable, int] = {}
        self.held: dict[int, Tensor] = {}  # what slots hold before the first step
        self.inputs: dict[int, int] = {}  # leaf -> slot
        self.weights: dict[str, int] = {}  # slots of all weights that are read here
        self.owned: dict[str, int] = {}  # of those that are updated here, the slots of their gradients
        self.buffers: dict[str, int] = {}  # slots of all buffers that are read or changed here
        self.changed: set[str] = set()  # the buffers that are changed here
        self.renewed: list[tuple[int, int]] = []  # after a step: slots, and those that replace what they hold
        self.stays: set[int] = set()  # slots that are not empty after a step
        self.at_end: list[TensorMessage] = []  # arrivals and departures after all ops
        self._place = {op: number for number, op in enumerate(order)}
        self._arrivals, self._departures = self._parcels(messages)
        self.loss = self._at("loss")
        self.outputs: dict[int, int] = {}  # slots of what the model returns, as far as it is made here, by position
        self.given: dict[int, int] = {}  # slots of gradients of outputs, likewise
        self.tasks = [self._task(op) for op in order]
        self._free()

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self._slot)

    # ---- slots -------------------------------------------------------------------------------------------

    def _at(self, *key: Hashable) -> int:
        """The slot of something, by what it is."""
        return self._slot.setdefault(key, len(self._slot))

    def _weight(self, name: str) -> int:
        if name not in self.weights:
            self.weights[name] = slot = self._at("weight", name)
            if self.adam is not None:
                own = self.ops.program.weights[name].detach().to(self.device, copy=True)
                self.held[slot] = own.requires_grad_(name in self.ops.trained)
        return self.weights[name]

    def _buffer(self, name: str) -> int:
        if name not in self.buffers:
            self.buffers[name] = slot = self._at("buffer", name)
            if self.adam is not None:
                self.held[slot] = self.ops.program.buffers[name].detach().to(self.device, copy=True)
        return self.buffers[name]

    def _constant(self, node: Node, value: Tensor) -> int:
        slot = self._at("constant", node)
        self.held[slot] = value.detach().to(self.device)
        return slot

    def _input(self, leaf: int) -> int:
        self.inputs[leaf] = self._at("input", leaf)
        return self.inputs[leaf]

    def _sent(self, op: int, tensor: SentTensor) -> int:
        """The slot of a tensor that an op makes, or that comes from it."""
        if tensor.of is TensorOf.RESULT:
            return self._at(TensorOf.RESULT, tensor.which)
        if tensor.of in (TensorOf.GRADIENT, TensorOf.SUM):
            return self._at(tensor.of, op, tensor.which)
        return self._new(tensor.of, str(tensor.which))

    def _new(self, of: TensorOf, name: str) -> int:
        """The slot for a value that replaces another one after the step."""
        old = self._weight(name) if of is TensorOf.WEIGHT else self._buffer(name)
        if of is TensorOf.WEIGHT and self._may_overwrite(name):
            return old
        new = self._at(of, name)
        if (old, new) not in self.renewed:
            self.renewed.append((old, new))
        return new

    def _may_overwrite(self, name: str) -> bool:
        """Whether a weight is updated here, after all ops here that read it or its saved value."""
        ops, owner = self.ops, self.ops.owner[name]
        update = self._place.get(ops.update[owner])
        if update is None:
            return False
        users = [op for op, part in enumerate(ops.program.parts) if name in part.weights.values()]
        reading = [*users, *(of[op] for op in users for of in (ops.grad, ops.grad_weight) if op in of)]
        return all(self._place.get(op, -1) < update for op in reading)

    # ---- messages ----------------------------------------------------------------------------------------

    def _parcels(
        self, messages: Sequence[SentTensors]
    ) -> tuple[dict[int, list[TensorMessage]], dict[int, list[TensorMessage]]]:
        """What each op here waits for first, and what it sends."""
        arrivals, departures = defaultdict[int, list[TensorMessage]](list), defaultdict[int, list[TensorMessage]](list)
        for tag, sent in enumerate(messages):
            if self.rank not in (sent.source, sent.destination):
                continue
            parcel = TensorMessage(sent, tag, tuple(self._sent(sent.op, tensor) for tensor in sent.tensors))
            if not sent.readers:
                self.at_end.append(parcel)
            elif sent.source == self.rank:
                departures[sent.op].append(parcel)
            else:
                arrivals[min(sent.readers, key=self._place.__getitem__)].append(parcel)
        return arrivals, departures

    # ---- ops ---------------------------------------------------------------------------------------------

    def _task(self, op: int) -> OpTask:
        graph = self.ops.graph
        phase, mirror = Phase(graph.phase[op]), int(graph.mirror[op])
        if phase is Phase.FORWARD:
            task = self._forward(op)
        elif phase is Phase.UPDATE:
            task = self._update(mirror)
        elif phase is Phase.REFRESH or graph.kinds[op].endswith(RECOMPUTED):  # whose outputs are still kept here
            task = OpTask(op, tape.nothing, [], [], [], [])
        else:
            task = self._grad(mirror) if self.ops.grad.get(mirror) == op else self._grad_weight(mirror)
        task.op, task.arrivals, task.departures = op, self._arrivals.get(op, []), self._departures.get(op, [])
        task.reads = [*task.reads, *(slot for parcel in task.departures for slot in parcel.slots)]
        task.makes = [*task.makes, *(slot for parcel in task.arrivals for slot in parcel.slots)]
        return task

    def _forward(self, op: int) -> OpTask:
        ops, part = self.ops, self._part(op)
        takes = [
            *(self._at(TensorOf.RESULT, node) for node in part.reads),
            *(self._weight(name) for name in part.weights.values()),
            *(self._input(leaf) for leaf in part.inputs.values()),
            *(self._buffer(name) for name in part.buffers.values()),
            *(self._constant(node, value) for node, value in part.constants.items()),
        ]
        made = [*enumerate(self._results(op))]
        for position, name in enumerate(part.updates, len(made)):
            made.append((position, self._new(TensorOf.BUFFER, name)))
            self.changed.add(name)
        if self.adam is None:
            made += [(position, self._output(output)) for position, output in enumerate(part.shown, len(made))]
        if part.outputs:
            made.append((len(part.returned), self.loss))
        has_backward = op in ops.grad or op in ops.grad_weight
        wanted = set(ops.wanted(op)) if op in ops.grad else set()
        cut = [position for position, node in enumerate(part.reads) if node in wanted]
        kept = self._at("kept", op)
        function = part.module(self.device).forward
        keeps = self._keeps(op) if has_backward else []
        compute = tape.forward(function, takes, cut, made, keeps, kept, drops=not part.own_calls)
        return OpTask(op, compute, [], [], takes, [*(slot for _, slot in made), *([kept] if has_backward else [])])

    def _part(self, op: int) -> ProgramPart:
        """A forward op by itself. That of the loss returns, in a loop, the outputs that it reads, and adds up none."""
        part = self.ops.program.parts[op]
        in_loop = self.adam is None and op == self.ops.program.loss
        return replace(part, results=part.outputs, outputs=()) if in_loop else part

    def _results(self, op: int) -> list[int]:
        """The slots of the results of a forward op."""
        if self.adam is None and op == self.ops.program.loss:
            return [self._output(position) for position in self.ops.program.loss_outputs]
        return [self._at(TensorOf.RESULT, node) for node in self._part(op).results]

    def _output(self, position: int) -> int:
        self.outputs[position] = self._at("output", position)
        return self.outputs[position]

    def _given(self, position: int) -> int:
        self.given[position] = self._at("given", position)
        return self.given[position]

    def _keeps(self, op: int) -> list[int]:
        """The positions of what a forward op makes whose gradients arrive."""
        part = self._part(op)
        if op == self.ops.program.loss:
            return [len(part.returned)] if part.outputs else [*range(len(part.results))]
        return [position for position, node in enumerate(part.results) if self.ops.sources(node)]

    def _arriving(self, op: int) -> tuple[tape.Arriving, list[int]]:
        """The gradients of what a forward op has made, and the slots that they come from."""
        part = self._part(op)
        parts: tuple[tuple[int, ...], ...]
        if op == self.ops.program.loss and self.adam is None:
            parts = tuple((self._given(position),) for position in self.ops.program.loss_outputs)
        elif op == self.ops.program.loss:
            one = self._at("one")
            self.held[one] = torch.ones((), dtype=part.outputs[0].meta["val"].dtype, device=self.device)
            parts = ((one,),)
        else:
            nodes = [part.results[position] for position in self._keeps(op)]
            parts = tuple(
                tuple(self._at(TensorOf.GRADIENT, self.ops.grad[source], node) for source in self.ops.sources(node))
                for node in nodes
            )
        kept, sums = self._at("kept", op), self._at("sums", op)
        return tape.Arriving(kept, parts, sums), [kept, sums, *(slot for each in parts for slot in each)]

    def _keeps_graph(self, op: int, own: int, other: dict[int, int]) -> bool:
        """Whether another backward op of a forward op, run later, needs what autograd has saved, too."""
        return op in other and self._place[other[op]] > self._place[own]

    def _grad(self, op: int) -> OpTask:
        arriving, reads = self._arriving(op)
        own = self.ops.grad[op]
        gradients = [self._at(TensorOf.GRADIENT, own, node) for node in self.ops.wanted(op)]
        keep = self._keeps_graph(op, own, self.ops.grad_weight)
        return OpTask(own, tape.grad(arriving, gradients, keep=keep), [], [], reads, [*gradients, arriving.sums])

    def _grad_weight(self, op: int) -> OpTask:
        arriving, reads = self._arriving(op)
        own, names = self.ops.grad_weight[op], self.ops.weights[op]
        weights = [self._weight(name) for name in names]
        sums = [self._at(TensorOf.SUM, own, name) for name in names]
        earlier = [self._earlier(op, name) for name in names]
        keep = self._keeps_graph(op, own, self.ops.grad)
        compute = tape.grad_weight(arriving, weights, sums, earlier, keep=keep)
        return OpTask(own, compute, [], [], [*reads, *(e for e in earlier if e >= 0)], [*sums, arriving.sums])

    def _earlier(self, op: int, name: str) -> int:
        earlier = self.ops.added.get((op, name))
        return -1 if earlier is None else self._at(TensorOf.SUM, self.ops.grad_weight[earlier], name)

    def _update(self, op: int) -> OpTask:
        names, gradient = self.ops.owned[op], self.ops.grad_weight[op]
        weights = [self._weight(name) for name in names]
        sums = [self._at(TensorOf.SUM, gradient, name) for name in names]
        self.owned.update(zip(names, sums, strict=True))
        if self.adam is None:
            return OpTask(op, tape.nothing, [], [], sums, [])
        adam = AdamUpdate([self.held[slot] for slot in weights], self.adam)
        new = [self._new(TensorOf.WEIGHT, name) for name in names]
        return OpTask(op, tape.update(adam, weights, sums, new), [], [], [*weights, *sums], new)

    # ---- memory ------------------------------------------------------------------------------------------

    def _free(self) -> None:
        """Say of each slot after which task it is empty again; not of what is kept for the next step, or its end."""
        self.stays = {
            *self.held, *self.inputs.values(), *self.buffers.values(), *self.weights.values(), *self.owned.values(),
            *self.outputs.values(), self.loss,
        }  # fmt: skip
        kept = self.stays.union(*self.renewed)
        last: dict[int, OpTask] = {}
        for task in self.tasks:
            last.update(dict.fromkeys([*task.makes, *task.reads], task))
        for slot, task in last.items():
            if slot not in kept:
                task.frees.append(slot)
