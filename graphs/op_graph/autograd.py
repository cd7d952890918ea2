"""Autograd: what PyTorch's autograd does in the backward pass of a forward graph, other than op by op.

A training step is made of a forward graph by rules (`graphs.capture.training_step`): whatever reads a weight, or what
is computed from one, has a gradient. A model may say otherwise, and its capture notes it here:

- `x.detach()`, `x.data`, `torch.no_grad()`, `torch.inference_mode()` stop the gradient at one reader of a tensor. Other
  readers of the same tensor send theirs.
- Of outputs of which one is called "loss", that one is trained.
- `x.requires_grad_()` asks for the gradient of a tensor that no weight was used for, which may be an input or a buffer.
- A `torch.autograd.Function` gives gradients to the arguments that its own backward pass gives one, at the cost of its
  forward's ops.
- A variable of the model's code keeps a tensor that no op reads any more.
- `torch.utils.checkpoint` keeps what a part of the model reads, and runs the part again for the backward pass.

Of a training step nothing is left to be said: where a gradient flows, it has an edge between two gradients.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

import msgspec

from graphs.foundation.errors import InputError

Pair = tuple[int, int]


class Checkpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Ops that keep nothing for the backward pass, and run again when that comes to them."""

    ops: tuple[int, ...]  # in the order in which they run
    whole: bool = False  # all run again, and not only up to the last one that saves something


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """Memory that a model's code keeps, as by a variable, though no op may read it any more."""

    ops: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    """Whose outputs lie there: the first makes it, others are parts of its output, or are written in its place."""
    until: int  # the last op that runs before it is freed


class Autograd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What differs from the rules; ops and weights are named by their numbers."""

    stops: tuple[Pair, ...] = ()  # producer, consumer: edges through which no gradient is sent back
    constant_uses: tuple[Pair, ...] = ()  # op, weight: uses of a weight that give it no gradient
    own: tuple[int, ...] = ()  # ops of custom functions that send gradients, though by their kind they have none
    inputs: tuple[Pair, ...] = ()  # op, held tensor: uses of inputs and buffers that give them a gradient
    leaves: tuple[int, ...] = ()  # ops whose output is given a gradient, though no trained weight depends on it
    outputs: tuple[int, ...] | None = None  # the ops whose outputs are trained; None: those that no op reads
    checkpoints: tuple[Checkpoint, ...] = ()
    kept_alive: tuple[Memory, ...] = ()  # those that the model's code keeps after ops have read them
    unknown: str = ""  # why it is not known what is trained, and the remedy; "" if it is

    def check(self, name: str, ops: int, weights: int, held: int) -> None:
        """Raise InputError unless all ops, weights and held tensors that are named are those of a graph."""
        named = {op for edge in self.stops for op in edge} | {op for op, _ in (*self.constant_uses, *self.inputs)}
        named |= {*self.own, *self.leaves, *(self.outputs or ())}
        named |= {op for memory in self.kept_alive for op in (*memory.ops, memory.until)}
        named |= {op for part in self.checkpoints for op in part.ops}
        if outside := sorted(op for op in named if not 0 <= op < ops):
            raise InputError(f"graph {name!r}: autograd names op {outside[0]}, which does not exist; there are {ops}")
        for what, uses, count in (("weight", self.constant_uses, weights), ("held tensor", self.inputs, held)):
            if outside := sorted(number for _, number in uses if not 0 <= number < count):
                raise InputError(
                    f"graph {name!r}: autograd names {what} {outside[0]}, which does not exist; there are {count}"
                )

    def kept(self, position: dict[int, int]) -> Autograd:
        """The same, where the ops have other positions; what concerns others is left out."""
        numbers = sorted(position)
        outputs = None if self.outputs is None else tuple(position[op] for op in self.outputs if op in position)
        return msgspec.structs.replace(
            self,
            stops=tuple((position[u], position[v]) for u, v in self.stops if u in position and v in position),
            constant_uses=tuple((position[op], weight) for op, weight in self.constant_uses if op in position),
            own=tuple(position[op] for op in self.own if op in position),
            inputs=tuple((position[op], tensor) for op, tensor in self.inputs if op in position),
            leaves=tuple(position[op] for op in self.leaves if op in position),
            outputs=outputs,
            kept_alive=tuple(
                Memory(ops, bisect_right(numbers, memory.until) - 1)
                for memory in self.kept_alive
                if (ops := tuple(position[op] for op in memory.ops if op in position))
            ),
            checkpoints=tuple(
                Checkpoint(ops=tuple(position[op] for op in part.ops if op in position), whole=part.whole)
                for part in self.checkpoints
            ),
        )
