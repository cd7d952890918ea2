"""The FLOPs of a real step, forward and backward, by PyTorch's own counter, where it is right.

It is given the formulas that it lacks: fused attention on the CPU costs what it costs elsewhere, and the gradient of a
grouped convolution's weight what the convolution costs (torch 2.13 counts it as if it had one group).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, sdpa_backward_flop_count, sdpa_flop_count

_aten = torch.ops.aten


def _attention(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    return int(sdpa_backward_flop_count(gradient, query, key, value))  # type: ignore[no-untyped-call]


def _convolution_backward(gradient: Any, x: Any, w: Any, *rest: Any, **_: object) -> int:
    """Once what the convolution costs for each gradient of a factor."""
    transposed, mask = rest[4], rest[7]
    once = conv_flop_count(x, w, gradient, transposed=transposed)
    return int(once) * int(sum(mask[:2]))


FORMULAS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    _aten.convolution_backward: _convolution_backward,
}


def real_step(module: nn.Module, args: tuple[Any, ...]) -> tuple[set[str], int]:
    """The parameters that a real step gives a gradient, and its FLOPs."""
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter:
        returned = module(*args)
        loss = returned["loss"] if isinstance(returned, dict) and "loss" in returned else None
        outputs = [leaf for leaf in tree_leaves(returned) if isinstance(leaf, Tensor) and leaf.requires_grad]
        (loss if loss is not None else torch.stack([output.sum() for output in outputs]).sum()).backward()
    return {name for name, each in module.named_parameters() if each.grad is not None}, counter.get_total_flops()
