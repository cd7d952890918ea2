"""Batches as planned: those for which the model's code does what it did when it was captured.

What the code has asked of its inputs' values then (`graphs.capture.known_values`), such as whether a mask leaves
anything out, is asked again of every batch before its step.
"""

from collections.abc import Iterator, Mapping

import torch

from envs.running.captured_program import CapturedProgram
from envs.running.model_data import Batch, batches
from graphs.capture.known_values import Answer, computed, starts
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError


def batches_as_planned(program: CapturedProgram, data: str = "", *, seed: int = 0) -> Iterator[Batch]:
    """A batch for each step, without end, as `batches`; raises InputError, too, for one with other answers."""
    example = program.example
    leaves = dict[int, int]()
    for leaf, tensor in enumerate(tensors_in((example.args, example.kwargs))):
        leaves.setdefault(id(tensor), leaf)
    for batch in batches(example, data, seed=seed):
        for answer in program.builder.program.answers:
            if not _is_same(program, answer, batch, leaves):
                raise InputError(
                    f"{example.name}: what is computed depends on data at {answer.line}, and a batch differs there "
                    f"from {answer.data}, which the step was planned for; give the model such example inputs as its "
                    "batches are, and plan it again"
                )
        yield batch


def _is_same(program: CapturedProgram, answer: Answer, batch: Batch, leaves: Mapping[int, int]) -> bool:
    """Whether a batch has the value that the example had."""
    inputs = program.builder.program.inputs
    given = {node: batch.get(leaves.get(id(inputs[node]), -1), inputs[node]) for node in starts(answer.asked)}
    value = computed(answer.asked, given)
    return value is not None and torch.equal(value, answer.value)
