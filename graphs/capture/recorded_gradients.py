"""Recorded gradients: through which nodes of a recorded run autograd would send gradients, and what it runs again.

A run is recorded below autograd. As there, what an operation makes requires a gradient if an operand does and gradients
are enabled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Node

from graphs.capture.checkpoints import NESTED, CheckpointedNodes, reentrant
from graphs.capture.gradient_rules import sends_gradients


class RecordedGradients:
    """What is found out node by node."""

    def __init__(self, requires: Callable[[object], bool]) -> None:
        """`requires` says of a tensor whether the node that it is now is among `requires_grad`."""
        self.requires_grad: set[Node] = set()
        self.leaves: set[Node] = set()  # those of them that are given a gradient by themselves
        self.checkpoints: list[CheckpointedNodes] = []
        self.unknown = ""  # why it is not known what is trained
        self._requires = requires
        self._checkpoint: CheckpointedNodes | None = None  # the one that runs
        self._around: bool | None = None  # whether gradients are enabled around the own function that runs

    @property
    def enabled(self) -> bool:
        """Whether autograd would note what is computed now."""
        return torch.is_grad_enabled() if self._around is None else self._around

    def note(self, node: Node, out: object) -> None:
        """Note a node that has just been computed."""
        is_reached = self.enabled and not self.requires_grad.isdisjoint(node.all_input_nodes)
        if is_reached and sends_gradients(node.target, out):
            self.requires_grad.add(node)
        if self._checkpoint is not None:
            self._checkpoint.nodes.add(node)

    def require(self, node: Node, *, required: bool) -> None:
        """Note that the module's code asks for the gradient of what a node has made, or for none."""
        if required and node not in self.requires_grad:
            self.leaves.add(node)
            self.requires_grad.add(node)
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
        before, self._around = self._around, self.enabled
        try:
            return apply(*args)
        finally:
            self._around = before

    @contextmanager
    def checkpoint(self, whole: bool, unknown: str = "") -> Iterator[None]:
        """What runs inside keeps nothing for the backward pass, and runs again there: the whole or what is needed."""
        if not self.enabled:
            yield
            return
        self.unknown = self.unknown or unknown or (NESTED if self._checkpoint is not None else "")
        outer, self._checkpoint = self._checkpoint, CheckpointedNodes(whole)
        self.checkpoints.append(self._checkpoint)
        try:
            yield
        finally:
            self._checkpoint = outer
