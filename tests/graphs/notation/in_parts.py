"""A captured model run op by op, each op in parts along some of its variables."""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Tensor

from graphs.descriptions.factored import FactoredGraph
from graphs.notation.operator import Operator, Space
from graphs.notation.ranges import Box, Range, cut
from graphs.notation.strategies import Strategy, strategy
from tests.oracle.sharded.boxed import slices
from tests.oracle.sharded.running import parts_of, run_factored

Choice = Callable[[Operator], dict[str, int]]  # in how many parts each of some variables is divided


def run_in_parts(graph: FactoredGraph, given: dict[int, Tensor], choose: Choice) -> dict[int, Tensor]:
    """All tensors by number; `given` are the weights and inputs."""
    values = {number: tensor.reshape(graph.shape(number)) for number, tensor in given.items()}
    for op, described in enumerate(graph.ops):
        if described is None:
            assert graph.graph.signatures is not None
            assert graph.graph.signatures.of[op] < 0, f"{graph.graph.names[op]} is not described"
            continue
        sources = [values[number] for number in graph.signatures.numbers(op)]
        spaces = parts(described.operator, choose(described.operator))
        own = [
            _counted_once(described.operator, space, parts_of(described.operator, space, sources)) for space in spaces
        ]
        made = run_factored(described, spaces, own)
        total = torch.zeros(graph.shape(op), dtype=made[0].dtype)
        for space, each in zip(spaces, made, strict=True):
            box = slices(described.operator.writes[0].region(space))
            total[box] = total[box] + each if each.dtype != torch.bool else each
        values[op] = total
    return values


def parts(operator: Operator, counts: dict[str, int]) -> Sequence[Space]:
    """The parts of the iteration space, but for empty ones."""
    ranges = [[each for each in cut(operator.sizes[name], count) if each.size] for name, count in counts.items()]
    return [operator.part(**dict(zip(counts, chosen, strict=True))) for chosen in product(*ranges)]


def _counted_once(operator: Operator, space: Space, slices_read: list[Tensor]) -> list[Tensor]:
    """All parts of a reduction have the whole gradient of what is apart from it: that of one of them counts."""
    pairs = zip(operator.reads, slices_read, strict=True)
    return [part.detach() if any(space[name].low for name in access.apart) else part for access, part in pairs]


def strategies(operator: Operator) -> tuple[Strategy, ...]:
    """A strategy for every variable that can be divided into two parts, in the order of the operator's sizes."""
    return tuple(
        strategy(operator, name) for name, size in operator.sizes.items() if size > 1 and name not in operator.opaque
    )


def needed(operator: Operator, ranges: dict[str, Range]) -> tuple[Box, ...]:
    """(reads,) the box of each input that the part of the operator with variables in these ranges reads."""
    space = operator.part(**ranges)
    return tuple(access.region(space) for access in operator.reads)


def made(operator: Operator, ranges: dict[str, Range]) -> tuple[Box, ...]:
    """(writes,) the box of each result that this part makes, or contributes to."""
    space = operator.part(**ranges)
    return tuple(access.region(space) for access in operator.writes)
