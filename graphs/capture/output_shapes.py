"""Shapes of outputs: PyTorch works out once what an operation on the meta device returns, for operands that are alike.

A model repeats its layers, and for many operations this takes PyTorch milliseconds of Python.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

_Spec = tuple[torch.Size, tuple[int, ...], torch.dtype]
_ATTRIBUTES = (
    int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout,
)  # fmt: skip


class OutputShapes:
    """Runs operations on tensors of the meta device."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[type, list[_Spec | None]]] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func(*args, **kwargs)` returns."""
        try:
            key = func, _described(args), _described(tuple(kwargs.items())), torch.get_default_dtype()
        except _NotAlike:
            return func(*args, **kwargs)
        if key in self._known:
            kind, specs = self._known[key]
            made = [None if spec is None else _made(spec) for spec in specs]
            return made[0] if kind is Tensor else kind(made)
        out = func(*args, **kwargs)
        kind = Tensor if isinstance(out, Tensor) else type(out)
        outputs = [out] if kind is Tensor else out
        if kind in (Tensor, tuple, list) and _may_be_made(func) and all(map(_is_plain, outputs)):
            self._known[key] = kind, [None if each is None else _spec(each) for each in outputs]
        return out


def of_attention(out: Tensor, args: tuple[Any, ...]) -> Tensor:
    """The output of attention on the meta device, laid out as it is on others; `args` as of its ATen operation.

    Without dropout these have fused kernels, which lay it out in memory as its query, so that merging heads copies
    nothing (as `meta__scaled_dot_product_flash_attention_for_cpu` in PyTorch's `_meta_registrations` says).
    """
    query, value, dropout = args[0], args[2], args[4] if len(args) > 4 else 0.0
    if dropout or query.dim() != 4 or query.shape[-1] != value.shape[-1]:
        return out
    order = sorted(range(4), key=query.stride().__getitem__, reverse=True)
    return torch.empty_permuted(out.shape, order, dtype=out.dtype, device=out.device)


class _NotAlike(Exception):  # noqa: N818
    """An operand that is not on the meta device, or that cannot be described."""


def _described(value: Any) -> Hashable:
    """What the shapes of outputs depend on: 1 and 1.0 are not alike."""
    if isinstance(value, Tensor):
        if not value.is_meta or value.layout is not torch.strided:
            raise _NotAlike
        return _spec(value)
    if isinstance(value, (tuple, list)):
        return tuple([_described(part) for part in value])
    if isinstance(value, _ATTRIBUTES):
        return type(value), value
    raise _NotAlike


def _may_be_made(func: Callable[..., Any]) -> bool:
    """Whether an operation returns new tensors, and no views."""
    return all(result.alias_info is None for result in func._schema.returns)  # type: ignore[attr-defined]


def _is_plain(value: object) -> bool:
    if not isinstance(value, Tensor):
        return value is None
    return value.is_meta and value.layout is torch.strided and value.storage_offset() == 0


def _spec(tensor: Tensor) -> _Spec:
    return tensor.shape, tensor.stride(), tensor.dtype


def _made(spec: _Spec) -> Tensor:
    shape, stride, dtype = spec
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
