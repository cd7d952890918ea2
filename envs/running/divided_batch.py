"""Divided batches: the parts of its inputs that replicas and micro-batches run a model with."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from envs.running.captured_program import CapturedProgram
from envs.running.model_data import Batch
from graphs.capture.bags import BAGS, OFFSETS
from graphs.capture.nested import tensors_in
from graphs.foundation.errors import InputError, UserCodeError


def check_divisible(program: CapturedProgram) -> None:
    """Raise InputError for a model whose batch cannot be divided by the first dimension of its inputs."""
    name, dimension = program.example.name, program.example.batch_dim
    if dimension:
        raise InputError(
            f"{name}: the plan divides the batch, which is dimension {dimension} of the model's inputs, and runs "
            "divide the first one; let the model take samples first (batch_first=True)"
        )
    for node in program.builder.program.nodes:
        if node.target in BAGS and program.inputs_of(node.args[OFFSETS]):
            module = list(node.meta["nn_module_stack"].values())[-1][0]
            raise InputError(
                f"{name}: the offsets of the EmbeddingBag {module!r} are an input, and number the rows of the whole "
                "batch, which the plan divides; give each sample as many rows, as an input of two dimensions without "
                "offsets, or take a plan that places ops"
            )


def program_of_part(
    program: CapturedProgram, parts: int, kept: dict[object, object], *, several: int = 1
) -> CapturedProgram:
    """The same model, captured with one of equal parts of its inputs, or several, which is kept for other plans.

    Raises InputError for a model that cannot be run on a part of its batch.
    """
    if parts == several:
        return program
    found = kept.get(("part", parts, several))
    if isinstance(found, tuple) and found[0] is program:
        return found[1]  # type: ignore[no-any-return]  # as it was kept
    check_divisible(program)
    example = program.example
    given = tensors_in((example.args, example.kwargs))
    rows = _rows((several, parts - several), example.samples)[0]
    part = dict(_of_rows({leaf: given[leaf] for leaf in program.leaves}, rows, example.samples))
    part |= {leaf: part[earlier] for leaf, earlier in program.repeated.items()}
    args, kwargs = program.arguments(part)
    remedy = "let its code take sizes from its inputs (x.shape[0]), or take a plan that places ops"
    samples = len(rows)
    if samples == 1:  # one sample has no variance for batch norm
        remedy = f"take a plan of fewer micro-batches or replicas, so that each part has more samples, or {remedy}"
    try:
        small = CapturedProgram.of(replace(example, args=args, kwargs=kwargs, samples=samples))
    except UserCodeError as error:
        raise InputError(
            f"{error}; that is with {samples} of its {example.samples} samples, as the plan divides them: {remedy}"
        ) from error
    kept["part", parts, several] = program, small
    return small


def divided(batch: Batch, parts: int, samples: int) -> list[Batch]:
    """A batch of some samples in equal parts, by the first dimension of all tensors that have as many.

    Raises InputError if they cannot be equal.
    """
    return [_of_rows(batch, rows, samples) for rows in _rows((1,) * parts, samples)]


def parts_of_replica(
    batch: Batch, samples: int, shares: Sequence[int], replica: int, micro_batches: int
) -> list[Batch]:
    """The micro-batches of one of several replicas, which have these shares of the batch.

    Raises InputError if parts cannot be equal.
    """
    rows = _rows(shares, samples)[replica]
    return divided(_of_rows(batch, rows, samples), micro_batches, len(rows))


def _rows(shares: Sequence[int], samples: int) -> list[range]:
    """(shares,) the samples of each. Raises InputError for samples that are not known, or not so many equal parts."""
    parts = sum(shares)
    if parts > 1 and (samples % parts or not samples):
        raise InputError(
            f"a batch of {samples} samples cannot be divided into {parts} equal parts; give a batch that {parts} "
            "divides"
        )
    ends = [end * samples // parts for end in accumulate(shares)]
    return [range(*both) for both in pairwise([0, *ends])]


def _of_rows(batch: Batch, rows: range, samples: int) -> Batch:
    """Some of the samples: of all tensors that have as many."""
    if len(rows) == samples:
        return batch
    return {
        number: tensor[rows.start : rows.stop] if tensor.dim() and len(tensor) == samples else tensor
        for number, tensor in batch.items()
    }
