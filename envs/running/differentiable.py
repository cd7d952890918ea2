"""Which results of a captured program have a gradient, by running it on tensors without data.

Autograd decides for each output whether it has one: not for integers, nor for running statistics, as a second batch
norm reads them. Devices must agree on it before the first step, as gradients are sent from one to another.
"""

from collections.abc import Container, Iterable

import torch
from torch import Tensor
from torch.fx import Node

from envs.running.program_part import ProgramPart

_META = torch.device("meta")


def differentiable(parts: Iterable[ProgramPart], trained: Container[str]) -> frozenset[Node]:
    """The results of parts, one after another, that depend on a trained parameter in a way that autograd can follow."""
    found = set[Node]()
    for part in parts:
        given = [_like(node, requires=node in found) for node in part.reads]
        given += [_like(node, requires=name in trained) for node, name in part.weights.items()]
        given += [_like(node, requires=False) for node in part.placeholders[len(given) :]]
        found.update(_followed(part, given))
    return frozenset(found)


def _followed(part: ProgramPart, given: list[Tensor]) -> list[Node]:
    try:
        made = part.module(_META)(*given)
    except (RuntimeError, NotImplementedError):  # an operation of a library that knows no shapes without data
        return [node for node in part.results if node.meta["val"].is_floating_point() and node not in part.stopped]
    return [node for node, tensor in zip(part.results, made, strict=False) if tensor.requires_grad]


def _like(node: Node, *, requires: bool) -> Tensor:
    value: Tensor = node.meta["val"]
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_META)
    return made.requires_grad_(requires and (value.is_floating_point() or value.is_complex()))
