"""Divided batches: the parts of its inputs that replicas and micro-batches run a model with."""

from dataclasses import replace

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


def program_of_part(program: CapturedProgram, parts: int, kept: dict[object, object]) -> CapturedProgram:
    """The same model, captured with one of equal parts of its inputs, which is kept for other plans.

    Raises InputError for a model that cannot be run on a part of its batch.
    """
    if parts == 1:
        return program
    found = kept.get(("part", parts))
    if isinstance(found, tuple) and found[0] is program:
        return found[1]  # type: ignore[no-any-return]  # as it was kept
    check_divisible(program)
    example = program.example
    given = tensors_in((example.args, example.kwargs))
    part = dict(divided({leaf: given[leaf] for leaf in program.leaves}, parts, example.samples)[0])
    part |= {leaf: part[earlier] for leaf, earlier in program.repeated.items()}
    args, kwargs = program.arguments(part)
    samples = example.samples // parts
    remedy = "let its code take sizes from its inputs (x.shape[0]), or take a plan that places ops"
    if samples == 1:  # one sample has no variance for batch norm
        remedy = f"take a plan of fewer micro-batches or replicas, so that each part has more samples, or {remedy}"
    try:
        small = CapturedProgram.of(replace(example, args=args, kwargs=kwargs, samples=samples))
    except UserCodeError as error:
        raise InputError(
            f"{error}; that is with {samples} of its {example.samples} samples, as the plan divides them: {remedy}"
        ) from error
    kept["part", parts] = program, small
    return small


def divided(batch: Batch, parts: int, samples: int) -> list[Batch]:
    """A batch of some samples in equal parts, by the first dimension of all tensors that have as many.

    Raises InputError if they cannot be equal.
    """
    if parts == 1:
        return [batch]
    if samples % parts or not samples:
        raise InputError(f"a batch of {samples} samples cannot be divided into {parts} equal parts")
    size = samples // parts
    return [
        {
            number: tensor[part * size : (part + 1) * size] if tensor.dim() and len(tensor) == samples else tensor
            for number, tensor in batch.items()
        }
        for part in range(parts)
    ]


def parts_of_replica(batch: Batch, samples: int, replicas: int, replica: int, micro_batches: int) -> list[Batch]:
    """The micro-batches of one of several replicas. Raises InputError if parts cannot be equal."""
    return divided(divided(batch, replicas, samples)[replica], micro_batches, samples // replicas)
