"""Adam: the optimizer of a step that is run, and its update of some weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Adam:
    """The settings of `torch.optim.Adam`, with its defaults."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def optimizer(self, weights: Sequence[Tensor]) -> torch.optim.Optimizer:
        """PyTorch's own, of some weights: the fused one, so that equal gradients make equal weights, to the bit."""
        return torch.optim.Adam(list(weights), lr=self.rate, betas=self.betas, eps=self.eps, fused=True)


class AdamUpdate:
    """The moments of some weights, and what a step makes of these.

    It calls the function that `torch.optim.Adam(fused=True)` calls, without the 30 us of Python around it. A weight
    that was looked up with sparse=True goes by `torch.optim.SparseAdam`.
    """

    def __init__(self, weights: Sequence[Tensor], adam: Adam) -> None:
        self._adam = adam
        self._first = [torch.zeros_like(weight, memory_format=torch.preserve_format) for weight in weights]
        self._second = [torch.zeros_like(weight, memory_format=torch.preserve_format) for weight in weights]
        self._steps = [torch.zeros((), device=weight.device) for weight in weights[:1]] * len(weights)
        self._in_step = True  # as long as all have had a gradient in each step: one number, which is counted once
        self._sparse: dict[int, torch.optim.SparseAdam] = {}

    def __call__(self, weights: list[Tensor], gradients: list[Tensor | None]) -> None:
        """Write new values into weights, given in the order of the beginning; one without a gradient stays."""
        taking = [number for number, gradient in enumerate(gradients) if gradient is not None]
        dense = list[Tensor]()
        for number in list(taking):
            weight, gradient = weights[number], gradients[number]
            assert gradient is not None
            if gradient.is_sparse:
                self._step_sparse(number, weight, gradient)
                taking.remove(number)
            else:  # the function goes through memory, as it lies
                same = gradient.stride() == weight.stride()
                dense.append(gradient if same else torch.empty_like(weight).copy_(gradient))
        if not taking:
            return
        if self._in_step and len(taking) < len(weights):
            self._steps, self._in_step = [step.clone() for step in self._steps], False
        steps = [self._steps[number] for number in taking]
        if self._in_step:
            steps[0] += 1
        else:
            torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            [weights[number] for number in taking], dense, [self._first[number] for number in taking],
            [self._second[number] for number in taking], [], steps, lr=self._adam.rate, beta1=self._adam.betas[0],
            beta2=self._adam.betas[1], weight_decay=0.0, eps=self._adam.eps, amsgrad=False, maximize=False,
        )  # fmt: skip

    def _step_sparse(self, number: int, weight: Tensor, gradient: Tensor) -> None:
        if number not in self._sparse:
            own = weight.detach().clone()
            self._sparse[number] = torch.optim.SparseAdam(
                [own], lr=self._adam.rate, betas=self._adam.betas, eps=self._adam.eps
            )
        [own] = self._sparse[number].param_groups[0]["params"]
        own.data, own.grad = weight.detach(), gradient  # written in the weight's own memory
        self._sparse[number].step()  # type: ignore[no-untyped-call]
        own.grad = None
