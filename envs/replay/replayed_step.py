"""ReplayedStep: the ops of a captured training step on all of their devices, called by one thread in the plan's order.

The order is that of the simulation (`op_step.step_order`), as in `placelab run`, and so are the ops: functions of slots
(`envs.running.op_by_op.op_tasks`), a list of them for each device. Here one thread calls all. What others read is
copied as soon as it is made, in side streams between accelerators, and waited for before the first op that reads it:

    order                   a(0)    b(1)    c(0)                d(1)
    gpu:0                   a       c
    gpu:0 to gpu:1             copy of a
    gpu:1                   b          d                        d reads a

No op of the forward pass reads one of the backward pass, and each of the latter follows from the gradients of outputs.
So a step has two halves, each in the plan's order, between which is the user's own loss. Ops are called one by one or,
after the first steps, launched as CUDA graphs (`envs.replay.graphed_step`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envs.placed_models.copies import Copier, CopyOf
from envs.placed_models.side_streams import PendingCopy
from envs.replay.cuda_graphs import StepGraphs, graphs_for
from envs.replay.graphed_step import GraphedStep
from envs.replay.ordered_ops import CopyMessage, OrderedOp
from envs.replay.replayed_pass import ReplayedPass, Turn, copy_all
from envs.running.captured_program import CapturedProgram
from envs.running.given_inputs import GivenInputs
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.op_step import step_order
from envs.running.op_by_op.op_tasks import OpTask, Tasks
from envs.running.op_by_op.sent_tensors import SentTensor, TensorOf, sent_tensors
from envs.simulation.simulator import LaidOut
from graphs.foundation.errors import InputError
from graphs.op_graph import SPARSE, Call, Phase

_COPY_OF = {TensorOf.RESULT: CopyOf.OUTPUT, TensorOf.GRADIENT: CopyOf.GRADIENT, TensorOf.SUM: CopyOf.GRADIENT}


class ReplayedStep:
    """A captured step whose weights, buffers and optimizer are the user's."""

    def __init__(self, program: CapturedProgram, laid: LaidOut, homes: Mapping[str, int], copier: Copier) -> None:
        """`homes`: the place of each weight by its name.

        Raises InputError for a plan that is no op placement, a graph that is not the program's, and what cannot be run
        op by op.
        """
        if laid.expansion is not None:
            raise InputError(
                "only a plan with one device per op, and the whole batch at once, is replayed; place with --plans "
                "placement"
            )
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
        self._ops_of = {phase: [ops[op] for op in order if graph.phase[op] == phase]
                        for phase in (Phase.FORWARD, Phase.BACKWARD)}  # fmt: skip
        self.given = GivenInputs(program, {leaf for made in self._made for leaf in made.inputs})
        self._changed = {name for made in self._made for name in made.changed}
        self._gradients = {name: (place, slot) for place, made in enumerate(self._made)
                           for name, slot in made.owned.items()}  # fmt: skip
        graphs = graphs_for(devices) if laid.problem.runtime.graphs else None
        self._graphed = None if graphs is None else self._graphed_step(graphs)

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
        run = self._begin(weights)
        for place, made in enumerate(self._made):
            given = {slot: self._local(inputs[leaf].detach(), place) for leaf, slot in made.inputs.items()}
            given |= {slot: self._local(buffers[name].detach(), place) for name, slot in made.buffers.items()}
            changed = {slot for name, slot in made.buffers.items() if name in self._changed}
            run.give(place, given, changed)
            for name, slot in () if run.has_weights else made.weights.items():
                if self._homes[name] == place:
                    run.slots[place][slot] = weights[name].detach().requires_grad_(name in self._ops.trained)
        for name, place, slot in self._fetched:
            run.coming[place, slot] = [
                self._sent(weights[name].detach(), self._homes[name], place, CopyOf.WEIGHT, None)
            ]
        self._call(run.turns[Phase.FORWARD], run)
        for place, made in enumerate(self._made):
            new = dict(made.renewed)
            copy_all(
                [buffers[name].detach() for name in made.changed],
                [run.slots[place][new[made.buffers[name]]] for name in made.changed],
            )
        self._copier.settle_all()
        return run

    def outputs(self, run: ReplayedPass) -> list[Tensor]:
        """What the model returns, as the forward pass has made it."""
        made = {output: run.slots[place][slot] for place, each in enumerate(self._made)
                for output, slot in each.outputs.items()}  # fmt: skip
        return [run.returned(made[position]) for position in sorted(made)]

    @torch.enable_grad()
    def backward(self, run: ReplayedPass, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of `trained` from those of all outputs, after which nothing is left of the pass.

        Raises InputError if its CUDA graphs are of a loss of other outputs.
        """
        run.check(gradients)
        for place, each in enumerate(self._made):
            for output, slot in each.given.items():
                run.put(place, slot, gradients[output])
        self._call(run.turns[Phase.BACKWARD], run)
        found = list[Tensor | None]()
        for name, (place, slot) in self._gradients.items():
            gradient, home = run.slots[place][slot], self._homes[name]
            if gradient is not None and home != place:
                gradient = self._copier.moved(gradient, place, home, CopyOf.GRADIENT, None)
            elif gradient is not None:
                gradient = run.returned(gradient)
            found.append(gradient)
        run.end()
        self._copier.settle_all()
        return found

    def _call(self, turns: Sequence[Turn], run: ReplayedPass) -> None:
        try:
            for turn in turns:
                self._call_turn(turn, run)
        except BaseException:
            run.fail()
            raise

    def _call_turn(self, turn: Turn, run: ReplayedPass) -> None:
        slots = run.slots[turn.place]
        for parcel in turn.arrivals:
            for slot, copied in zip(parcel.slots, run.coming.pop(parcel.key), strict=True):
                run.put(turn.place, slot, self._received(copied))
                if parcel.key in self._trained_copies:
                    slots[slot].requires_grad_()
        run.compute(turn)
        for parcel in turn.departures:
            run.coming[parcel.key] = [
                self._sent(slots[slot], turn.place, parcel.destination, parcel.of, parcel.call) for slot in parcel.slots
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

    def _received(self, copied: PendingCopy | Tensor | None) -> Tensor | None:
        side = self._copier.side
        there = side.receive(copied) if side is not None and isinstance(copied, PendingCopy) else copied
        assert not isinstance(there, PendingCopy)
        return there

    def _local(self, given: Tensor, place: int) -> Tensor:
        """An input or a buffer where it is read; these are taken to be on every device when a plan is simulated."""
        places = self._copier.places
        if places.has(given, place):
            return given
        return self._copier.moved(given, places.of(given.device), place, CopyOf.GIVEN, None)

    # ---- CUDA graphs -----------------------------------------------------------------------------------------

    def _begin(self, weights: Mapping[str, Tensor]) -> ReplayedPass:
        if self._graphed is not None:
            return self._graphed.begin([*weights.values()])
        return ReplayedPass([list(first) for first in self._first], self._ops_of)

    def _graphed_step(self, graphs: StepGraphs) -> GraphedStep:
        graph, parts = self._ops.graph, self._program.parts
        called = {op for op, part in enumerate(parts) if part.own_calls}  # Python code of the user's
        sparse = [op for op, kind in enumerate(graph.kinds) if kind.endswith(SPARSE)]
        called.update(graph.mirror[sparse].tolist())
        at_end = {
            (place, slot) for place, made in enumerate(self._made)
            for slot in (*made.outputs.values(), *made.owned.values(), *(new for _, new in made.renewed))
        }  # fmt: skip
        return GraphedStep(graphs, self._ops_of, self._first, at_end, called, graph.names)

    # ---- the list of calls -----------------------------------------------------------------------------------

    def _ordered(self, place: int, task: OpTask) -> OrderedOp:
        def parcel(message: Any) -> CopyMessage:
            first: SentTensor = message.sent.tensors[0]
            of, call = _COPY_OF[first.of], self._calls[message.sent.op]
            return CopyMessage(message.tag, message.slots, message.sent.destination, of, call)

        arrivals, departures = [*map(parcel, task.arrivals)], [*map(parcel, task.departures)]
        mirror = int(self._ops.graph.mirror[task.op])
        forward = task.op if mirror < 0 else mirror
        return OrderedOp(
            task.op, forward, place, task.compute, arrivals, departures, task.reads, task.makes, task.frees
        )  # fmt: skip

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
