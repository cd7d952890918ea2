"""Exporting: PyTorch's exporter turns a module into ATen operations. It is slow, and can do what recording cannot.

Which operations are decomposed, and how, is decided here for recording as well. The exporter's table writes operations
as ones that a compiler fuses again: Hardswish as an addition, two clamps, a product and a division. PyTorch itself runs
one kernel, which reads x and writes y, and autograd saves x alone. So what PyTorch has a kernel of its own for is kept
whole, as is what autograd differentiates as one (a sum of kernels such as `logsumexp`, whose intermediate results live
no longer than it). Only operations that become one other operation of the same cost go by that one's name.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS
from torch.fx import Node
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_unflatten

from graphs.capture.gradient_flow import detaches
from graphs.capture.gradient_rules import sends_gradients, trained
from graphs.capture.own_functions import functions_seen
from graphs.capture.program import TracedProgram
from graphs.capture.recorded_calls import at_line
from graphs.foundation.user_code import is_users

aten = torch.ops.aten

# Kept whole in addition. The first two are one kernel on GPUs, not elsewhere; autograd has derivatives of the others.
_WHOLE = (
    aten.scaled_dot_product_attention.default, aten.rms_norm.default, aten.affine_grid_generator.default,
    aten.binary_cross_entropy_with_logits.default, aten.celu.default, aten.detach.default, aten.diag_embed.default,
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

_GRAD_MODE = "wrap_with_set_grad_enabled"  # what a `no_grad` block becomes, and what `detach` does

_UNKNOWN = (
    "its code calls {}, whose backward pass is lost by torch.export, which traced it (a warning says why); "
    "change what the warning names, or capture the forward pass alone, with --no-training (in Python, training=False)"
)


def export(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> TracedProgram:
    """The module's forward pass; nothing is computed. Raises what the exporter, or the module, raises."""
    own = list[str]()  # functions with a backward pass of their own

    def note(function: type, apply: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        own.append(f"{function.__name__}.apply{at_line()}")
        return apply(*given)

    with _own_code_runs_eagerly(), functions_seen(note):
        exported = torch.export.export(module, args, kwargs, strict=False)
    program = exported.run_decompositions(_table())
    parameters = dict(module.named_parameters(remove_duplicate=False))
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    placed = {
        node: parameters[signature.inputs_to_parameters[node.name]]
        for node in nodes
        if node.name in signature.inputs_to_parameters
    }
    outputs = [node for node in nodes if node.name in set(signature.user_outputs)]
    requires_grad = _requires_grad(exported, nodes, placed)
    return TracedProgram(
        nodes,
        outputs,
        placed,
        names={parameter: name for name, parameter in module.named_parameters()},
        requires_grad=requires_grad,
        trained=trained(_returned(program, outputs), outputs, requires_grad.__contains__),
        unknown=_UNKNOWN.format(own[0]) if own else "",
    )


def _requires_grad(exported: Any, nodes: Sequence[Node], parameters: Mapping[Node, nn.Parameter]) -> set[Node]:
    """The nodes of a decomposed program that gradients flow through; the program that was exported knows where not."""
    disabled = {node.name for node in exported.graph.nodes if str(node.target) == _GRAD_MODE and not node.args[0]}
    found = {node for node, parameter in parameters.items() if parameter.requires_grad}
    for node in nodes:
        origins = node.meta.get("from_node") or []
        stops = any(detaches(origin.target) or origin.name in disabled for origin in origins)
        if stops or node.op != "call_function" or found.isdisjoint(node.all_input_nodes):
            continue
        if sends_gradients(node, node.meta.get("val")):
            found.add(node)
    return found


def _returned(program: Any, outputs: Sequence[Node]) -> object:
    """What the module returns, with nodes in place of tensors; the bare nodes, if it returns other things as well."""
    spec = program.call_spec.out_spec
    return tree_unflatten(outputs, spec) if spec.num_leaves == len(outputs) else outputs


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


@cache
def decomposition_of(func: Any) -> Callable[..., Any] | None:
    """How an operation is decomposed, if it is."""
    if is_whole(func):
        return None
    if func in decompositions() and not func._schema.is_mutable:
        return decompositions()[func]
    # Batch norm writes its statistics, though its schema does not say so.
    if func is aten.native_batch_norm.default or torch.Tag.maybe_aliasing_or_mutating in func.tags:
        composite = func._can_decompose()
    else:
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    return func.decompose if composite and func not in PRESERVED_ATEN_CIA_OPS else None


class _NoTensor:
    """No tensor is one."""


@contextmanager
def exporter_settings(*, compiling: Collection[type[nn.Module]] = ()) -> Iterator[None]:
    """What the exporter sets while it traces: no backend has operations of its own.

    Nor has attention that is not trained, which some devices alone run as one operation. Libraries that ask PyTorch
    whether a compiler runs them, or whether a tensor is a fake one, are told so in the parts of the classes `compiling`
    alone; the user's own code never is: its other branch is what a training step runs.
    """
    backends = torch.backends.mkldnn, torch.backends.nnpack, torch.backends.cudnn
    set_before = [backend.set_flags(False) for backend in backends]
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with _own_code_runs_eagerly() if compiling else nullcontext(), _compiled(frozenset(compiling)):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_attention)
        for backend, before in zip(backends, set_before, strict=True):
            backend.set_flags(*before)


@contextmanager
def _compiled(classes: Set[type]) -> Iterator[None]:
    """Inside, PyTorch says in the modules of some classes, and in these alone, that a compiler runs them."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag, torch._subclasses.FakeTensor
    entered = 0

    def say(compiling: bool) -> None:
        torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = compiling
        torch._subclasses.FakeTensor = before[2] if compiling else _NoTensor  # type: ignore[assignment,misc]

    def enter(part: nn.Module, _: object) -> None:
        nonlocal entered
        entered += type(part) in classes
        say(entered > 0)

    def leave(part: nn.Module, *_: object) -> None:
        nonlocal entered
        entered -= type(part) in classes
        say(entered > 0)

    hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)] if classes else []
    say(False)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag, torch._subclasses.FakeTensor = before  # type: ignore[misc]


@contextmanager
def _own_code_runs_eagerly() -> Iterator[None]:
    """Inside, the user's own code is told that no compiler runs it, whatever others are told.

    So is code that has bound a question to a name (`from torch.compiler import is_compiling`).
    """
    one, two, three = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch.compiler.is_exporting

    def asked(question: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: question() and not is_users(sys._getframe(1).f_code.co_filename)

    bound = [
        (module, name, value)
        for module in list(sys.modules.values())
        # asked first: all modules together have hundreds of thousands of names
        if module is torch.compiler or _is_users_module(module)
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is one or value is two or value is three
    ]
    for module, name, question in bound:
        setattr(module, name, asked(question))
    try:
        yield
    finally:
        for module, name, question in bound:
            setattr(module, name, question)


def _is_users_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return is_users(file) if isinstance(file, str) else getattr(module, "__name__", "") == "__main__"
