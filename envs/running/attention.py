"""Attention of DTensors on CPUs: PyTorch says for its kernels on GPUs how their heads and samples are divided.

For the kernel on CPUs that is said here. Where a mask is given it is not used, as parts of the mask would be needed.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.nn.attention import SDPBackend, sdpa_kernel

from graphs.capture.forward import Builder

aten = torch.ops.aten

_WAYS = (Replicate(), Shard(0), Shard(1))  # whole, by samples, by heads
_MASK = 3  # the position of the mask among the arguments of attention


def attention_kernels(builder: Builder, device: torch.device) -> AbstractContextManager[None]:
    """Inside, the attention of a captured model runs on DTensors on this device."""
    if device.type != "cpu":
        return nullcontext()
    _say_how_divided()
    calls = [node for node in builder.live if node.target is aten.scaled_dot_product_attention.default]
    has_mask = any(len(node.args) > _MASK and node.args[_MASK] is not None for node in calls)
    is_named = any(node.kwargs.get("attn_mask") is not None for node in calls)
    return sdpa_kernel([SDPBackend.MATH]) if has_mask or is_named else nullcontext()


@cache
def _say_how_divided() -> None:
    """Queries, keys and values have the dimensions (samples, heads, length, width)."""
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default

    register_sharding(forward)(lambda *_, **__: [([way] * 2, [way] * 3 + [None] * 2) for way in _WAYS])
    register_sharding(backward)(lambda *_, **__: [([way] * 3, [way] * 6 + [None] * 2) for way in _WAYS])
