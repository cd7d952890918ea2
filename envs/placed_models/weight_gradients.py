"""Deferred gradients of weights: those of inputs, for which other devices wait, are computed first.

The backward pass of a linear layer, a convolution or a look-up has two parts that need not run together. `deferred`
makes two nodes of autograd's graph of them:

    y = f(x, w)     becomes     y = join(f(x, w without gradient), token)     token = weight_part(x without gradient, w)

Autograd runs, of the nodes that are ready on a device, the one that was made last. The nodes of tokens say that they
were made first of all: they run when a device has nothing else to do, as in a zero-bubble schedule (Qi et al. 2023,
"Zero Bubble Pipeline Parallelism"), whose price they have: what they read is kept until then. All else is autograd's:
hooks, tied weights, accumulation, `torch.autograd.grad`.

With `create_graph=True` gradients are differentiated in turn, that of x by w, too. Then neither part is run: y is
computed again, and autograd differentiates that; nothing is deferred.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from envs.placed_models.autograd_functions import applied

aten = torch.ops.aten

OfWeight = Callable[[Tensor, Tensor, Tensor], Tensor]  # gradient of the output, x, w -> gradient of w
Again = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # x, w and the bias, if there is one -> y

_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_PARAMETERS = {
    "linear": ("input", "weight", "bias"),
    "embedding": ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    **dict.fromkeys(_CONVOLUTIONS, ("input", "weight", "bias", "stride", "padding", "dilation", "groups")),
}
_FIRST = 0  # a number before those of all nodes


def deferred(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function returns, the gradients of its weights being deferred; NotImplemented if they cannot be."""
    name = str(getattr(function, "__name__", ""))
    if name not in _PARAMETERS or not torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return NotImplemented
    given = dict(zip(_PARAMETERS[name], args, strict=False)) | kwargs
    x, weight, bias = given.get("input"), given.get("weight"), given.get("bias")
    if not isinstance(x, Tensor) or not isinstance(weight, Tensor) or not weight.requires_grad:
        return NotImplemented
    of_weight, channel = _of_weight(name, given), -1 - int(name[4]) if name in _CONVOLUTIONS else -1
    if of_weight is None:
        return NotImplemented
    without = given | {key: given[key].detach() for key in ("weight", "bias") if given.get(key) is not None}
    y = function(**without)
    token = applied(_WeightPart, weight, bias, (x, y), of_weight, channel)
    token.grad_fn._set_sequence_nr(_FIRST)  # type: ignore[union-attr]
    return applied(_Join, y, token, x, weight, bias, _again(function, given))


def _again(function: Callable[..., Any], given: dict[str, Any]) -> Again:
    """The call by itself, of other tensors, with the digits that it is computed with now."""
    rest = {key: value for key, value in given.items() if key not in ("input", "weight", "bias")}
    device = given["weight"].device.type
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def again(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        named = {"input": x, "weight": weight} | ({} if bias is None else {"bias": bias})
        with torch.autocast(device, dtype, enabled):
            made: Tensor = function(**named, **rest)
        return made

    return again


class _WeightPart(torch.autograd.Function):
    """A tensor that shows the memory of y, and whose gradient is that of y."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor | None, x_y: tuple[Tensor, Tensor], of_weight: OfWeight, channel: int
    ) -> Tensor:
        x, y = x_y  # in a tuple, by which autograd knows that no gradient of them is asked for
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.weight = weight.detach()  # no gradient depends on its values, so that it may change
        ctx.of_weight, ctx.channel, ctx.bias = of_weight, channel, None if bias is None else bias.dtype
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        if gradient is None:  # where gradients are differentiated
            return None, None, None, None, None
        [x], weight = ctx.saved_tensors, ctx.weight
        x = x.to(gradient.dtype) if x.is_floating_point() else x  # autocast has computed with less digits
        of_weight, of_bias = ctx.of_weight(gradient, x, weight).to(weight.dtype), None
        if ctx.needs_input_grad[1]:
            others = [dimension for dimension in range(gradient.dim()) if dimension != gradient.dim() + ctx.channel]
            of_bias = (gradient.sum(others) if others else gradient).to(ctx.bias)
        return of_weight, of_bias, None, None, None


class _Join(torch.autograd.Function):
    """y, which depends on the token, too; and on x and w themselves where gradients are differentiated."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, _: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, again: Again) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.again = None if bias is None else (bias.shape, bias.dtype), again
        return y.detach()  # which autograd takes for no view: of one nothing might be changed in place

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        [gradient] = gradients
        if not torch.is_grad_enabled():
            return gradient, gradient, None, None, None, None
        x, weight = ctx.saved_tensors
        bias = None  # no gradient depends on its values
        if ctx.bias is not None:
            shape, dtype = ctx.bias
            bias = torch.zeros(shape, dtype=dtype, device=weight.device, requires_grad=ctx.needs_input_grad[4])
        needed = dict(zip((2, 3, 4), (x.view_as(x), weight.view_as(weight), bias), strict=True))
        y = ctx.again(*needed.values())
        wanted = [place for place in needed if ctx.needs_input_grad[place]]
        found = torch.autograd.grad(y, [needed[place] for place in wanted], gradient, create_graph=True)
        of = dict(zip(wanted, found, strict=True))
        return None, None, of.get(2), of.get(3), of.get(4), None


def _of_weight(name: str, given: dict[str, Any]) -> OfWeight | None:
    """The gradient of the weight of a call; None if it is one that is not known here."""
    if name == "linear":
        return _of_linear
    if name == "embedding":
        return None if given.get("max_norm") is not None or given.get("sparse") else _of_embedding(given)
    return None if isinstance(given.get("padding"), str) else _of_convolution(int(name[4]), given)


def _of_linear(gradient: Tensor, x: Tensor, _: Tensor) -> Tensor:
    return gradient.reshape(-1, gradient.shape[-1]).T @ x.reshape(-1, x.shape[-1])


def _of_embedding(given: dict[str, Any]) -> OfWeight:
    def of_weight(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        rows, padding = weight.shape[0], given.get("padding_idx")
        padding = -1 if padding is None else padding % rows
        by_frequency = bool(given.get("scale_grad_by_freq", False))
        found: Tensor = aten.embedding_dense_backward(gradient, x, rows, padding, by_frequency)
        return found

    return of_weight


def _of_convolution(dimensions: int, given: dict[str, Any]) -> OfWeight:
    def sizes(key: str, otherwise: int) -> list[int]:
        value = given.get(key, otherwise)
        return [value] * dimensions if isinstance(value, int) else list(value) * (dimensions // len(value))

    stride, padding, dilation = sizes("stride", 1), sizes("padding", 0), sizes("dilation", 1)

    def of_weight(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        is_single = gradient.dim() == dimensions + 1  # without a batch
        g, rows = (each[None] if is_single else each for each in (gradient, x))
        found: Tensor = aten.convolution_backward(
            g, rows, weight.to(gradient.dtype), None, stride, padding, dilation, False, [0] * dimensions,
            given.get("groups", 1), [False, True, False],
        )[1]  # fmt: skip
        return found

    return of_weight
