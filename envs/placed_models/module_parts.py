"""Parts of a module: whether it still is what it was when it was looked at."""

from __future__ import annotations

import torch
from torch import nn


class Parts:
    """What a module consists of, which is looked at before it runs whole: it is no other module then."""

    __slots__ = ("_device", "_is_training", "_modules", "_tensors", "_with_gradient", "all")

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        """All parameters and buffers are to be on a device."""
        self.all = tuple(module.modules())
        self._device, self._with_gradient = device, torch.is_grad_enabled()
        self._is_training = [(own := vars(part), own.get("training")) for part in self.all]
        self._modules = [(part._modules, name, each) for part in self.all for name, each in part._modules.items()]
        tensors = [own for part in self.all for own in (part._parameters, part._buffers)]
        self._tensors = [(own, name) for own in tensors for name in own]

    def are_same(self) -> bool:
        """Whether the module has the same parts, each with its tensors on the device, and as ready to be trained."""
        for own, is_training in self._is_training:
            if own.get("training") is not is_training:
                return False
        for own, name, module in self._modules:
            if own.get(name) is not module:
                return False
        device = self._device
        for own, name in self._tensors:
            tensor = own.get(name)
            if tensor is not None and tensor.device != device:
                return False
        return torch.is_grad_enabled() is self._with_gradient

    @property
    def run(self) -> bool:
        """Whether they run as PyTorch runs them: none is compiled, whose code sees modes."""
        return not any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in self.all)
