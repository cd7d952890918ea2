"""GivenInputs: whether what a step is given is what its model was captured with, but for the numbers."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from envs.running.captured_program import CapturedProgram
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError


class GivenInputs:
    """The inputs that a program reads, by their leaf in the model's arguments."""

    def __init__(self, program: CapturedProgram, read: Iterable[int]) -> None:
        """`read` are the leaves of those that are read."""
        given = tensors_in((program.example.args, program.example.kwargs))
        self._kinds = {leaf: (given[leaf].shape, given[leaf].dtype) for leaf in read}
        self._repeated = program.repeated

    def check(self, inputs: Mapping[int, Tensor]) -> None:
        """Raise InputError for a missing input, and for one of another shape or type."""
        for leaf, (shape, dtype) in self._kinds.items():
            given = inputs.get(leaf)
            if given is None:
                raise InputError(f"the model reads tensor {leaf} of its arguments, which is not given; give it")
            if given.shape != shape or given.dtype != dtype:
                raise InputError(
                    f"tensor {leaf} of the model's arguments is {given.dtype} of shape {tuple(given.shape)}, and "
                    f"the plan is for {dtype} of shape {tuple(shape)}; give it such a one, or plan the model with "
                    "this one"
                )
        for leaf, same in self._repeated.items():
            other, given = inputs.get(leaf), inputs.get(same)
            if other is not None and given is not None and other is not given and not torch.equal(other, given):
                raise InputError(
                    f"tensors {same} and {leaf} of the model's arguments are the same in its example, so it was "
                    "captured as if they always were; give an example with two"
                )
