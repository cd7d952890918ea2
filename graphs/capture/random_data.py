"""Random data for a model on the meta device, which has shapes alone, so that it can be run.

Weights are drawn as their module's `reset_parameters` does, or else from a normal distribution; buffers of modules
without it are 0; inputs are normal numbers, and integers 0 or 1, which every table of tokens or classes has.
"""

import torch
from torch import Tensor, nn

SPREAD = 0.02  # standard deviation of weights whose module does not say how to draw them


def fill(module: nn.Module, device: str) -> None:
    """Give data to all parts of a module; a tensor that several parts have stays one."""
    made: dict[int, Tensor] = {}

    def filled(tensor: Tensor) -> Tensor:
        if id(tensor) not in made:
            data = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = nn.Parameter(data, requires_grad=tensor.requires_grad) if is_parameter else data
        return made[id(tensor)]

    with torch.no_grad():
        for part in module.modules():
            new = list[Tensor]()
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    if tensor is not None and tensor.is_meta:
                        is_first = id(tensor) not in made
                        held[name] = filled(tensor)  # type: ignore[assignment]  # a parameter of a parameter
                        new += [made[id(tensor)]] if is_first else []
            for tensor in new:
                if not isinstance(tensor, nn.Parameter):
                    tensor.zero_()
                elif tensor.is_floating_point():
                    tensor.normal_(0, SPREAD)
            reset = getattr(part, "reset_parameters", None)
            if new and callable(reset):
                reset()


def drawn(given: Tensor, device: str) -> Tensor:
    """A tensor with data in place of one on the meta device; another one as it is."""
    if not given.is_meta:
        return given
    if given.is_floating_point() or given.is_complex():
        return torch.randn(given.shape, dtype=given.dtype, device=device)
    return torch.randint(2, given.shape, device=device).to(given.dtype)
