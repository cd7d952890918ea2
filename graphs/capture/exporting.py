"""Exporting: PyTorch's exporter turns a module into ATen operations. It is slow, and can do what recording cannot.

Which operations are decomposed, and how, is decided here for recording as well. The exporter's table writes operations
as ones that a compiler fuses again: Hardswish as an addition, two clamps, a product and a division. PyTorch itself runs
one kernel, which reads x and writes y, and autograd saves x alone. So what PyTorch has a kernel of its own for is kept
whole, as is what autograd differentiates as one (a sum of kernels such as `logsumexp`, whose intermediate results live
no longer than it). Only operations that become one other operation of the same cost go by that one's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import nn

from graphs.capture.program import TracedProgram

aten = torch.ops.aten

# Kept whole in addition. The first two are one kernel on GPUs, not elsewhere; autograd has derivatives of the others.
_WHOLE = (
    aten.scaled_dot_product_attention.default, aten.rms_norm.default, aten.celu.default,
    aten.affine_grid_generator.default, aten.binary_cross_entropy_with_logits.default, aten.diag_embed.default,
    aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, aten.logsumexp.default, aten.masked_fill.Scalar,
    aten.masked_fill.Tensor, aten.mv.default, aten.nan_to_num.default, aten.select_scatter.default,
    aten.soft_margin_loss.default, aten.special_xlog1py.other_scalar, aten.special_xlog1py.self_scalar,
    aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self,
)  # fmt: skip
# Each is another operation that reads and writes the same: clamp_min is clamp. Batch norm becomes one whose schema says
# that it writes its statistics.
_RENAMED = (
    aten.channel_shuffle.default, aten.clamp_max.Tensor, aten.clamp_max.default, aten.clamp_min.Tensor,
    aten.clamp_min.default, aten.floor_divide.default, aten.native_batch_norm.default, aten.norm.ScalarOpt_dim,
    aten.norm.ScalarOpt_dim_dtype, aten.rsub.Tensor, aten.sgn.default,
)  # fmt: skip


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
    for op in list(table.keys()):  # type: ignore[no-untyped-call]
        if is_whole(op):
            table.pop(op, None)  # type: ignore[no-untyped-call]
    return table


@cache
def is_whole(op: Any) -> bool:
    """Whether an operation of the exporter's table is one op all the same."""
    if op in _WHOLE or op in _RENAMED or op._schema.is_mutable:
        return op in _WHOLE
    if op.name().startswith(("aten::upsample_", "aten::_upsample_")):  # with sizes or factors: one kernel by size
        return True
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    is_composite = has_kernel(op.name(), "CompositeImplicitAutograd")
    is_new = all(result.alias_info is None for result in op._schema.returns)
    return is_new and not is_composite and has_kernel(op.name(), "CPU") and has_kernel(op.name(), "Meta")


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
