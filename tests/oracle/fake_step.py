"""What a real training step holds: the storages that are alive while it runs on fake tensors, which have no data.

PyTorch itself runs the model, its autograd and its optimizer, so that this owes nothing to the rules of capture. Each
storage counts from the operation that returns it until nobody refers to it any more, with its own bytes: no blocks of
an allocator, no workspaces inside of kernels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from graphs.capture.examples import Example, example_of

Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def sgd(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Without momentum, weight by weight."""
    return torch.optim.SGD(weights, 1e-3, foreach=False)


def adam(weights: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Fused: the update makes no tensors besides its state."""
    return torch.optim.Adam(weights, 1e-3, fused=True)


OPTIMIZERS: dict[str, Optimizer] = {"sgd": sgd, "adam": adam}


@dataclass
class Held:
    """Bytes of storages."""

    static: int = 0  # before the step: weights, buffers, inputs and the optimizer's state
    peak: int = 0  # the most that is alive at once in the step
    steps: list[tuple[str, int]] = field(default_factory=list)  # of each operation what is alive after it


class Storages(TorchDispatchMode):
    """Follows the storages of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, int] = {}
        self.now = 0
        self.held = Held()

    def see(self, tensor: Tensor) -> None:
        """Count the storage of a tensor, unless it is known."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.alive:
            self.alive[key] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self._forget, key)

    def begin(self) -> None:
        """What is alive now is held for the whole step."""
        self.held = Held(self.now, self.now)

    def _forget(self, key: int) -> None:
        self.now -= self.alive.pop(key, 0)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.add.Tensor and is_sum_of_gradients(*args):
            func = torch.ops.aten.add_.Tensor
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.see(leaf)
        self.held.peak = max(self.held.peak, self.now)
        self.held.steps.append((str(func), self.now))
        return out


def is_sum_of_gradients(total: Tensor, gradient: object) -> bool:
    """Whether autograd's engine adds a gradient to a sum that nobody else refers to: it does that in place.

    Not so where a dispatch mode sees it (`can_accumulate_inplace`, torch/csrc/autograd/input_buffer.cpp).
    """
    is_engines = not torch.is_grad_enabled() and torch._C._current_autograd_node() is not None
    if not is_engines or not isinstance(gradient, Tensor) or total.shape != gradient.shape:
        return False
    # the engine, the dispatcher and Python refer to the tensor here, the tensor and Python to its storage
    uses = total._use_count()  # type: ignore[attr-defined]
    storage_uses = torch._C._storage_Use_Count(total.untyped_storage()._cdata)
    span = 1 + sum((size - 1) * stride for size, stride in zip(total.shape, total.stride(), strict=True))
    return uses <= 5 and storage_uses <= 2 and span == total.numel()


class _Loss(torch.autograd.Function):
    """One number of all outputs, which keeps none of them; each has a gradient of its size."""

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> Tensor:
        ctx.like = [(each.shape, each.dtype) for each in outputs]
        return outputs[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.ones(shape, dtype=dtype) for shape, dtype in ctx.like)


def loss_of(outputs: object) -> Tensor:
    """As `training_step` has it: all outputs that depend on a weight make up one number."""
    found = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    loss: Tensor = _Loss.apply(*found)  # type: ignore[no-untyped-call]
    return loss


def held_by_step(
    model: str | Example,
    optimizer: str | None = "adam",
    *,
    micro_batches: int = 1,
    step: Callable[..., None] | None = None,
    by_values: bool = False,
) -> Held:
    """What the second step of a model holds, so that the optimizer has its state; the spec of a family, or an example.

    Gradients are set to None before a step, as `zero_grad` does. With `micro_batches` the step runs that many times on
    the example's inputs and adds the gradients up. Without an optimizer there is the forward pass alone, without
    gradients. `step(module, args, kwargs)`, if it is given, runs in place of forward and backward passes. With
    `by_values` the example's own tensors are used, for a model whose sizes depend on their values.
    """
    example = example_of(model) if isinstance(model, str) else model
    storages = Storages()
    mode = nullcontext() if by_values else FakeTensorMode(allow_non_fake_inputs=True)
    with mode, _native_dropout(), example.importing():
        module, args, kwargs = (example.module, example.args, example.kwargs) if by_values else _fake(example)
        weights = [weight for weight in module.parameters() if weight.requires_grad]
        update = None if optimizer is None else OPTIMIZERS[optimizer](weights)
        for tensor in (*module.parameters(), *module.buffers(), *tree_leaves((args, kwargs))):
            if isinstance(tensor, Tensor):
                storages.see(tensor)
        with storages, torch.set_grad_enabled(update is not None):
            for _ in range(2):
                if update is None:
                    storages.begin()
                    module(*args, **kwargs)
                    continue
                update.zero_grad()
                storages.begin()
                if step is not None:
                    step(module, args, kwargs)
                else:
                    for _ in range(micro_batches):
                        loss_of(module(*args, **kwargs)).backward()  # type: ignore[no-untyped-call]
                update.step()
    return storages.held


def _fake(example: Example) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The example with fake tensors on the CPU in place of its own; tied weights stay tied."""
    known: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            made = torch.empty(tensor.shape, dtype=tensor.dtype)
            is_weight = isinstance(tensor, nn.Parameter)
            known[id(tensor)] = nn.Parameter(made, tensor.requires_grad) if is_weight else made
        return known[id(tensor)]

    for part in example.module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in list(tensors.items()):
                if tensor is not None:
                    tensors[name] = fake(tensor)  # type: ignore[assignment]
    args, kwargs = tree_map_only(Tensor, fake, (example.args, example.kwargs))
    return example.module, tuple(args), dict(kwargs)


@contextmanager
def _native_dropout() -> Iterator[None]:
    """Dropout as accelerators run it, with a mask of one byte an element; the CPU's own keeps numbers."""

    def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return torch.native_dropout(input, p, training)[0] if training else input

    with patch.object(nn.functional, "dropout", dropout):
        yield
