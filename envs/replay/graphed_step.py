"""GraphedStep: the stretches of a replayed step as CUDA graphs, and the memory that these read and write.

First steps are called op by op, as PyTorch begins to use libraries in them; ops that wait for their device there are
never captured. The next step is captured stretch by stretch, each just before it is launched:

    put         what others have made (inputs, copies, gradients of outputs, results of what is no graph) is copied to
                where graphs read it
    launch      kernels run again, in the memory that they were captured with; Python computes nothing
    restore     slots get the tensors that the capture has put there, as far as others read them, or they are sent: no
                graph that is captured later gets their memory

Weights are read where they are. If they lie elsewhere from some step on, that is captured anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from envs.replay.cuda_graphs import StepGraphs
from envs.replay.ordered_ops import OrderedOp
from envs.replay.replayed_pass import ReplayedPass, Turn, copy_all
from envs.replay.stretches import Stretch, share, stretches
from envs.running.op_by_op import tape
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase

FIRST_STEPS = 2  # before what runs is captured


@dataclass
class Captured:
    """What was captured in one step."""

    addresses: tuple[int, ...]  # of weights
    slots: list[tape.Slots]
    turns: Mapping[Phase, Sequence[Stretch]]
    static: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # where graphs read, by place and slot
    launches: dict[Stretch, tuple[Callable[[], None], dict[int, Tensor | None]]] = field(default_factory=dict)
    """Each graph, and what slots get after it."""
    lacking: tuple[bool, ...] | None = None  # which outputs have no gradient; None before the backward pass


class GraphedStep:
    """Makes the passes of a step whose ops are given by phase."""

    def __init__(
        self,
        graphs: StepGraphs,
        ops: Mapping[Phase, Sequence[OrderedOp]],
        first: Sequence[tape.Slots],
        at_end: Collection[tuple[int, int]],
        called: Collection[int],
        names: Sequence[str],
    ) -> None:
        """`first` is what slots hold before a step, and `at_end` are those that are read after it, by place and slot.

        Of the forward ops in `called` no op is captured. `names` are those of all ops.
        """
        self._graphs, self._ops, self._first, self._at_end, self._names = graphs, ops, first, at_end, names
        self._called, self._steps = set(called), 0
        self._addresses = tuple[int, ...]()
        self._captured: Captured | None = None
        self._latest: Callable[[], GraphedPass | None] = lambda: None

    def begin(self, weights: Sequence[Tensor]) -> ReplayedPass:
        """The next pass.

        It is called op by op where weights have just come to lie elsewhere, and while an earlier pass, whose memory
        graphs would use again, waits for its backward pass.
        """
        was, self._addresses = self._addresses, tuple(weight.data_ptr() for weight in weights)
        if self._steps < FIRST_STEPS:
            return FirstPass(self.fresh(), self._ops, step=self)
        latest = self._latest()
        if self._addresses != was or (latest is not None and not latest.is_over):
            return ReplayedPass(self.fresh(), self._ops)
        captured = self._captured
        if captured is None or captured.lacking is None or captured.addresses != self._addresses:
            captured = self._captured = self._uncaptured()
        made = GraphedPass(captured.slots, captured.turns, step=self, captured=captured, weights=weights)
        self._latest = weakref.ref(made)
        return made

    def fresh(self) -> list[tape.Slots]:
        """The slots of each place before a step."""
        return [list(slots) for slots in self._first]

    def fail(self) -> None:
        """What was captured is not used again: a pass has not come to its end."""
        self._captured = None

    def try_op(self, op: OrderedOp, slots: tape.Slots) -> None:
        """Call an op, and keep in mind whether it can be captured."""
        if self._graphs.waits(op.place, partial(op.compute, slots)):
            self._called.add(op.forward)

    def end_first_step(self) -> None:
        """One of the first steps is over."""
        self._steps += 1

    def launch(self, captured: Captured, stretch: Stretch) -> None:
        """Launch a graph, which is captured if it is not there yet."""
        slots = captured.slots[stretch.place]
        if stretch not in captured.launches:
            launch = self._capture(stretch, slots)
            captured.launches[stretch] = launch, {slot: slots[slot] for slot in stretch.shared}
        launch, shared = captured.launches[stretch]
        launch()
        for slot, tensor in shared.items():
            slots[slot] = tensor

    def _capture(self, stretch: Stretch, slots: tape.Slots) -> Callable[[], None]:
        try:
            return self._graphs.capture(stretch.place, partial(stretch.compute, slots))
        except Exception as error:
            first, last = (self._names[stretch.ops[at].op] for at in (0, -1))
            raise InputError(
                f"the ops from {first!r} to {last!r} cannot be captured as a CUDA graph "
                f"({str(error).partition(chr(10))[0]}); replay them one by one, with `cuda_graphs=False`"
            ) from error

    def _uncaptured(self) -> Captured:
        self._graphs.forget()
        turns = {phase: stretches(ops, self._is_graph) for phase, ops in self._ops.items()}
        share([each for of_phase in turns.values() for each in of_phase], self._at_end)
        return Captured(self._addresses, self.fresh(), turns)

    def _is_graph(self, op: OrderedOp) -> bool:
        return self._graphs.takes(op.place) and op.forward not in self._called


@dataclass(eq=False, kw_only=True)
class FirstPass(ReplayedPass):
    """A pass in which it is tried what can be captured."""

    step: GraphedStep

    def compute(self, turn: Turn) -> None:
        """Compute an op."""
        assert isinstance(turn, OrderedOp)
        self.step.try_op(turn, self.slots[turn.place])

    def end(self) -> None:
        """The backward pass has run."""
        super().end()
        self.step.end_first_step()


@dataclass(eq=False, kw_only=True)
class GraphedPass(ReplayedPass):
    """A pass that launches graphs, in the memory of all such passes."""

    step: GraphedStep
    captured: Captured
    weights: Sequence[Tensor]

    def __post_init__(self) -> None:
        self.is_captured = self.captured.lacking is not None
        self._versions = [weight._version for weight in self.weights]

    @property
    def has_weights(self) -> bool:
        """Weights are where they were captured."""
        return self.is_captured

    def give(self, place: int, tensors: Mapping[int, Tensor], changed: Collection[int]) -> None:
        """Copy what is there before a step to where graphs read it."""
        del changed
        static = self.captured.static
        if not all((place, slot) in static for slot in tensors):
            for slot, tensor in tensors.items():
                self.put(place, slot, tensor)
            return
        copy_all([static[place, slot] for slot in tensors], [*tensors.values()])

    def put(self, place: int, slot: int, tensor: Tensor | None) -> None:
        """Copy what was made elsewhere to where graphs read it."""
        if tensor is not None:
            there = self.captured.static.get((place, slot))
            if there is None:
                there = self.captured.static[place, slot] = tensor.detach().clone()
            else:
                there.detach().copy_(tensor)
            tensor = there
        self.slots[place][slot] = tensor

    def compute(self, turn: Turn) -> None:
        """Launch a graph, or call what is none."""
        assert isinstance(turn, Stretch)
        if turn.is_graph:
            self.step.launch(self.captured, turn)
            return
        slots = self.slots[turn.place]
        turn.compute(slots)
        for slot in turn.shared:
            self.put(turn.place, slot, slots[slot])

    def returned(self, tensor: Tensor) -> Tensor:
        """The next step makes its own where that is."""
        return tensor.clone()

    def check(self, gradients: Sequence[Tensor | None]) -> None:
        """Raise an error for gradients of other outputs than in the step that was captured, and for changed weights."""
        lacking = tuple(gradient is None for gradient in gradients)
        if self.captured.lacking not in (None, lacking):
            raise InputError(
                "the loss is made of other outputs than in the step whose CUDA graphs were captured; make it of the "
                "same ones in each step, or replay ops one by one, with `cuda_graphs=False`"
            )
        if [weight._version for weight in self.weights] != self._versions:
            raise RuntimeError(
                "a weight was changed in place between the forward and the backward pass of a replayed step; change "
                "weights after it"
            )
        self.captured.lacking = lacking

    def fail(self) -> None:
        """Slots may hold what a later step would take for its own."""
        self.step.fail()

    def end(self) -> None:
        """What graphs read and write stays."""
        self.is_over = True
