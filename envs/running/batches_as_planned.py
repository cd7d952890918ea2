"""Batches as planned: those for which the model's code does what it did when it was captured.

What the code has asked of its inputs' values then (`graphs.capture.known_values`), such as whether a mask leaves
anything out, is asked again of every batch before its step.
"""

from collections.abc import Iterator

import torch

from envs.running.captured_program import CapturedProgram
from envs.running.model_data import Batch, batches
from graphs.capture.known_values import computed, starts, values_of
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError


def batches_as_planned(program: CapturedProgram, data: str = "", *, seed: int = 0) -> Iterator[Batch]:
    """A batch for each step, without end, as `batches`; raises InputError, too, for one with other answers."""
    for batch in batches(program.example, data, seed=seed):
        check_batch(program, batch)
        yield batch


def check_batch(program: CapturedProgram, batch: Batch, what: str = "a batch") -> None:
    """Raise InputError for a batch, or a part of one, for which the model's code would do what was not captured."""
    if not (answers := program.builder.program.answers):
        return
    example, inputs = program.example, program.builder.program.inputs
    leaves = dict[int, int]()
    for leaf, tensor in enumerate(tensors_in((example.args, example.kwargs))):
        leaves.setdefault(id(tensor), leaf)
    read = {node: inputs[node] for node in starts(answer.asked for answer in answers)}
    values = values_of({node: batch.get(leaves.get(id(tensor), -1), tensor) for node, tensor in read.items()})
    for answer in answers:
        value = computed(answer.asked, values)
        if value is None or not torch.equal(value, answer.value):
            raise InputError(
                f"{example.name}: what is computed depends on data{answer.at}, and {what} differs there from "
                f"{answer.data}, which the step was planned for; give the model such example inputs as its batches "
                "are, and plan it again, or let `parallelize` run its own code"
            )
