"""Autocast: in which precision operations run where a model's code enters `torch.autocast` for another device.

A model for GPUs says `torch.autocast("cuda", dtype=torch.bfloat16)`. PyTorch casts for tensors on that device alone,
and capture has none there: on the meta device, or on the CPU, the block would change nothing. Here the casts are made
that PyTorch makes on CUDA, by its own lists (ATen/autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP and those after it).
Autocast for the device that the tensors are on is PyTorch's own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten

_KINDS_OF_DEVICES = ("cuda", "cpu", "xpu", "mps", "hpu")
# In the type of data that autocast is given.
LOWER_PRECISION = {
    "_convolution", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d",
    "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "einsum", "gru_cell",
    "linalg_multi_dot", "linalg_vecdot", "linear", "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu_cell",
    "rnn_tanh_cell", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell",
}  # fmt: skip
SINGLE_PRECISION = {
    "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "acos", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh",
    "cosine_embedding_loss", "cosine_similarity", "dist", "erfinv", "exp", "expm1", "frobenius_norm", "group_norm",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p", "log2",
    "logsumexp", "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "native_layer_norm",
    "nll_loss", "nll_loss2d", "nuclear_norm", "pdist", "poisson_nll_loss", "pow", "reciprocal", "renorm", "rms_norm",
    "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softplus", "tan", "triplet_margin_loss",
    "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "upsample_trilinear3d",
}  # fmt: skip
# These read what they are given, and make single precision of it, unless they are told a type.
MAKES_SINGLE_PRECISION = {
    "cumprod", "cumsum", "linalg_matrix_norm", "linalg_vector_norm", "log_softmax", "prod", "softmax", "sum",
}  # fmt: skip
# In the widest type that they are given.
WIDEST = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add", "tensordot",
    "vdot",
}  # fmt: skip


class Autocast:
    """Casts what operations read, as autocast for another kind of device than `home` would there."""

    def __init__(self, home: torch.device) -> None:
        self._home = home.type
        self._dtype: torch.dtype | None = None  # that of the block that is entered
        self._running = False  # what an operation that was cast consists of is not cast again
        self._weights: dict[tuple[int, torch.dtype], Tensor] = {}  # those that were cast in the block that is entered

    @contextmanager
    def entered_as_named(self) -> Iterator[None]:
        """Inside, blocks for a device that the machine may not have are entered; PyTorch would pass over them."""
        block: Any = torch.amp.autocast_mode.autocast
        enter, leave = block.__enter__, block.__exit__

        def entered(of: Any) -> Any:
            found = enter(of)
            self._look()
            return found

        def left(of: Any, *error: object) -> Any:
            found = leave(of, *error)
            self._look()
            return found

        self._look()
        with (
            patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: True),
            patch.object(block, "__enter__", entered),
            patch.object(block, "__exit__", left),
        ):
            yield

    def _look(self) -> None:
        """Take notice of the blocks that are entered: operations, which run below them, see none of them."""
        others = (kind for kind in _KINDS_OF_DEVICES if kind != self._home and torch.is_autocast_enabled(kind))
        self._dtype = next((torch.get_autocast_dtype(kind) for kind in others), None)
        if self._dtype is None:
            self._weights.clear()

    @property
    def is_entered(self) -> bool:
        """Whether operations may have to be cast."""
        return self._dtype is not None and not self._running

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func` returns with its operands cast; NotImplemented where autocast leaves it as it is."""
        dtype, name = self._dtype, func.overloadpacket.__name__
        if dtype is None or func.namespace != "aten":
            return NotImplemented
        if name in LOWER_PRECISION or name in SINGLE_PRECISION:
            to: torch.dtype | None = dtype if name in LOWER_PRECISION else torch.float32
        elif name in WIDEST:
            to = torch.float32 if any(each.dtype == torch.float32 for each in _castable((args, kwargs))) else dtype
        elif name in MAKES_SINGLE_PRECISION and _castable(args[:1]) and _takes_dtype(func):
            given = kwargs.get("dtype") or next((each for each in args[1:] if isinstance(each, torch.dtype)), None)
            to, args, kwargs = None, _without_dtype(func, args), kwargs | {"dtype": given or torch.float32}
        else:
            return NotImplemented
        self._running = True
        try:
            if to is not None:
                args, kwargs = tree_map_only(Tensor, lambda read: self._cast(read, to), (args, kwargs))
            return func(*args, **kwargs)
        finally:
            self._running = False

    def _cast(self, read: Tensor, dtype: torch.dtype) -> Tensor:
        if not _castable(read) or read.dtype == dtype:
            return read
        key = id(read), dtype
        if key in self._weights:
            return self._weights[key]
        made: Tensor = aten._to_copy.default(read, dtype=dtype)
        if isinstance(read, nn.Parameter) and torch.is_autocast_cache_enabled():
            self._weights[key] = made
        return made


def _castable(values: Any) -> list[Tensor]:
    """The tensors that autocast casts: of floating-point numbers, but for double precision."""
    tensors = [each for each in tree_leaves(values) if isinstance(each, Tensor)]
    return [each for each in tensors if each.is_floating_point() and each.dtype != torch.float64]


@cache
def _takes_dtype(func: Callable[..., Any]) -> bool:
    return any(argument.name == "dtype" for argument in func._schema.arguments)  # type: ignore[attr-defined]


def _without_dtype(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments by position, of which a type of data that comes last is given by name instead."""
    named = [argument.name for argument in func._schema.arguments]
    return args[: named.index("dtype")]
