"""Exporting: PyTorch's exporter turns a module into ATen operations. It is slow, and can do what recording cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn

from graphs.capture.program import TracedProgram

aten = torch.ops.aten

# Devices run each of these as one kernel; PyTorch would decompose them into many ops.
KEPT_WHOLE = (aten.scaled_dot_product_attention.default, aten.nll_loss_forward.default, aten.silu.default)


def export(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> TracedProgram:
    """The module's forward pass; nothing is computed. Raises what the exporter, or the module, raises."""
    exported = torch.export.export(module, args, kwargs, strict=False)
    program = exported.run_decompositions(_table())
    parameters = dict(module.named_parameters(remove_duplicate=False))
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    return TracedProgram(
        nodes,
        outputs=[node for node in nodes if node.name in set(signature.user_outputs)],
        parameters={
            node: parameters[signature.inputs_to_parameters[node.name]]
            for node in nodes
            if node.name in signature.inputs_to_parameters
        },
        names={parameter: name for name, parameter in module.named_parameters()},
    )


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """How the exporter decomposes each operation that it decomposes."""
    return dict(_table().items())


def _table() -> Any:
    table = torch.export.default_decompositions()
    for op in KEPT_WHOLE:
        table.pop(op, None)  # type: ignore[no-untyped-call]
    return table


@contextmanager
def exporter_settings() -> Iterator[None]:
    """What the exporter sets while it traces: code may ask whether it runs; no backend has operations of its own."""
    flags = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    backends = torch.backends.mkldnn, torch.backends.nnpack, torch.backends.cudnn
    set_before = [backend.set_flags(False) for backend in backends]
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = flags
        for backend, before in zip(backends, set_before, strict=True):
            backend.set_flags(*before)
