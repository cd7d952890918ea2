"""Recorded gradients: through which nodes of a recorded run autograd would send gradients, and what it runs again.

A run is recorded below autograd. As there, what an operation makes requires a gradient if an operand does and gradients
are enabled.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_map_only

from graphs.capture.checkpoints import NESTED, CheckpointedNodes, reentrant
from graphs.capture.gradient_rules import sends_gradients
from graphs.capture.own_functions import ComputesGradientsError, Mode, OwnCall, asking, own_gradients
from graphs.capture.recorded_calls import Unrecorded, at_line, current_line

_ALONE = "or capture the forward pass alone, with --no-training (in Python, training=False)"
_FAILS = (
    f"the backward pass of {{}} fails on tensors without data ({{}}); let it depend on their shapes alone, {_ALONE}"
)
_AGAIN = (
    "the backward pass of {} computes gradients by torch.autograd, whose operations cannot be recorded; let "
    f"torch.utils.checkpoint recompute that part, which is captured, {_ALONE}"
)
_APART = (
    "{} gives a gradient to an argument that its output is not computed from, which is not captured; compute it from "
    f"that, {_ALONE}"
)


class RecordedGradients:
    """What is found out node by node."""

    def __init__(self, requires: Callable[[object], bool], node_of: Callable[[Tensor], Node], mode: Mode) -> None:
        """`requires` says of a tensor whether the node that it is now, `node_of` it, is among `requires_grad`.

        `mode` is that in which operations on tensors run that are not recorded.
        """
        self.requires_grad: set[Node] = set()
        self.leaves: set[Node] = set()  # those of them that are given a gradient by themselves
        self.checkpoints: list[CheckpointedNodes] = []
        self.unknown = ""  # why it is not known what is trained
        self.own_calls: list[OwnCall] = []
        self.unseen: list[str] = []  # the lines that change a tensor in place without autograd
        self.own: set[Node] = set()  # those of custom functions that gradients flow through, whatever they compute
        self.cuts: set[tuple[Node, Node]] = set()  # what a node reads that gets no gradient from it
        self._requires, self._node_of, self._mode = requires, node_of, mode
        self._function: list[Node] | None = None  # the nodes of the custom function that runs
        self._checkpoint: CheckpointedNodes | None = None  # the one that runs
        self._around: bool | None = None  # whether gradients are enabled around the own function that runs

    @property
    def enabled(self) -> bool:
        """Whether autograd would note what is computed now."""
        return torch.is_grad_enabled() if self._around is None else self._around

    @property
    def found(self) -> dict[str, Any]:
        """What a `TracedProgram` holds of it, by the names of its fields."""
        return {
            "requires_grad": self.requires_grad, "leaves": self.leaves, "own": self.own, "cuts": self.cuts,
            "checkpoints": self.checkpoints, "unknown": self.unknown, "own_calls": self.own_calls,
            "unseen": self.unseen,
        }  # fmt: skip

    def note(self, node: Node, out: object) -> None:
        """Note a node that has just been computed."""
        is_reached = self.enabled and not self.requires_grad.isdisjoint(node.all_input_nodes)
        if is_reached and sends_gradients(node, out):
            self.requires_grad.add(node)
        if self._function is not None:
            self._function.append(node)
        if self._checkpoint is not None:
            self._checkpoint.nodes.add(node)

    def require(self, node: Node, *, required: bool) -> None:
        """Note that the module's code asks, from now on, for the gradient of what a node has made, or for none."""
        if required and node not in self.requires_grad:
            self.leaves.add(node)
            self.requires_grad.add(node)
            self.cuts.update((node, reader) for reader in node.users)
        elif not required:
            self.leaves.discard(node)
            self.requires_grad.discard(node)

    def own_function(self, function: type, apply: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """What a function with its own backward pass returns; it runs without gradients, and has one as a whole."""
        checkpointed = reentrant(function, args)
        if checkpointed is not None:
            part, given = checkpointed
            with self.checkpoint(whole=True) if any(map(self._requires, given)) else torch.no_grad():
                return part(*given)
        asked = [arg for arg in args if isinstance(arg, Tensor) and self.enabled and self._requires(arg)]
        outer, self._function = self._function, list[Node]()
        before, self._around = self._around, False
        try:
            given = tree_map_only(Tensor, self._node_of, args) if asked else ()
            try:
                with asking(asked):
                    returned = apply(*args)
            except RuntimeError as error:
                if "a leaf Variable that requires grad" not in str(error):
                    raise
                raise Unrecorded(f"{_called(function)} changes an argument in place") from error
            if asked:
                self._connect(function, self._function, args, returned)
                made = tree_map_only(Tensor, self._node_of, returned)
                is_pure = tree_map_only(Tensor, self._node_of, args) == given
                nodes = tuple(self._function)
                self.own_calls.append(OwnCall(function, current_line(), given, nodes, made, is_pure))
        finally:
            if outer is not None:
                outer += self._function
            self._function, self._around = outer, before
        return returned

    def _connect(self, function: type, nodes: list[Node], args: tuple[Any, ...], returned: object) -> None:
        """Let gradients flow through the nodes of a custom function to the arguments that its backward pass gives one.

        Where its forward pass leads from none of these to an output, it is not known how they flow.
        """
        try:
            made, given = own_gradients(returned, self._mode)
        except ComputesGradientsError:
            self.unknown = self.unknown or _AGAIN.format(_called(function))
            return
        except Exception as error:  # whatever the user's code raises
            self.unknown = self.unknown or _FAILS.format(_called(function), f"{type(error).__name__}: {error}")
            return
        of_args = [(self._node_of(arg), gets) for arg, gets in zip(args, given, strict=False) if self._requires(arg)]
        reached, needed = {node for node, gets in of_args if gets}, {self._node_of(tensor) for tensor in made}
        without = {node for node, gets in of_args if not gets} - reached
        if not reached:
            return
        for node in nodes:
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
        if not needed <= reached:
            self.unknown = self.unknown or _APART.format(_called(function))
        for node in reversed(nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        through = [node for node in nodes if node in reached and node in needed]
        self.requires_grad.update(through)
        self.own.update(through)
        self.cuts.update((read, node) for node in through for read in node.all_input_nodes if read in without)

    @contextmanager
    def checkpoint(self, whole: bool, unknown: str = "") -> Iterator[None]:
        """What runs inside keeps nothing for the backward pass, and runs again there: the whole or what is needed."""
        if not self.enabled:
            yield
            return
        if why := self.unknown or unknown or (NESTED if self._checkpoint is not None else ""):
            self.unknown = self.unknown or why.format(at_line())
        outer, self._checkpoint = self._checkpoint, CheckpointedNodes(whole)
        self.checkpoints.append(self._checkpoint)
        try:
            yield
        finally:
            self._checkpoint = outer


def _called(function: type) -> str:
    return f"{function.__name__}{at_line()}"
