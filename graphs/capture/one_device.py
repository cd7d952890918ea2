"""One device: wherever a model's code puts its tensors, they stay on the device of its example.

Which device runs what is for a plan to say, so capture leaves out moves that the code makes ("x.to('cuda:1')",
"device='cuda'"). Nor need the machine have these devices: where it has none, PyTorch would end the process.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from graphs.foundation.user_code import users_line

_METHODS = {getattr(Tensor, name): name for name in ("cpu", "cuda", "xpu")}
_META = torch.device("meta")


def home_of(tensors: Iterable[Tensor]) -> torch.device:
    """The device that most of the tensors are on; the CPU without any."""
    devices = [tensor.device for tensor in tensors]
    return max(dict.fromkeys(devices), key=devices.count) if devices else torch.device("cpu")


class OneDevice(TorchFunctionMode):
    """Inside, functions that are told another device than `home` take `home`, and nothing is moved off the meta device.

    On an accelerator, the CPU remains the CPU: some functions take lengths or indices there alone.
    """

    def __init__(self, home: torch.device, *, missing: bool = False) -> None:
        """With `missing`, only devices that this machine has not are replaced."""
        super().__init__()
        self.home, self.missing = home, missing
        self.said: list[str] = []  # a sentence about what was replaced first

    def __enter__(self) -> OneDevice:
        self._apply = apply = nn.Module._apply

        def applied(part: nn.Module, function: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
            """As PyTorch does, but for a module of which nothing moves: that needs no new tensors."""
            held = [*part.parameters(recurse), *part.buffers(recurse)]
            stays = all(function(tensor) is tensor for tensor in held)
            return part if stays else apply(part, function, recurse)  # type: ignore[no-untyped-call]

        nn.Module._apply = applied  # type: ignore[method-assign]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        nn.Module._apply = self._apply  # type: ignore[method-assign]

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function with `home` in place of other devices."""
        kwargs = kwargs or {}
        if func is torch.tensor and self.home == _META:  # of values, which capture knows
            return func(*args, **{key: value for key, value in kwargs.items() if key != "device"})
        home = _META if func in (*_METHODS, Tensor.to) and args[0].is_meta else self.home
        if func in _METHODS:
            named = torch.device(_METHODS[func])
            at_home = self._at(home, named)
            return func(*args, **kwargs) if at_home is named else args[0].to(at_home)
        if func is Tensor.to and args[1:] and isinstance(args[1], (str, int)):
            args = (args[0], self._at(home, args[1]), *args[2:])
        args = tuple([self._at(home, each) if isinstance(each, torch.device) else each for each in args])
        if kwargs.get("device") is not None:
            kwargs = kwargs | {"device": self._at(home, kwargs["device"])}
        return func(*args, **kwargs)

    def _at(self, home: torch.device, named: Any) -> Any:
        """The home in place of another device; what may stay, or names no device, as it is."""
        try:  # a number is one of an accelerator, which the machine may lack
            device = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
        except (RuntimeError, TypeError):
            return named
        is_home = device.type == home.type and device.index in (None, home.index)
        if is_home or device == _META or (device.type == "cpu" and home != _META):
            return named
        if self.missing and home != _META and _exists(device):
            return named
        if not self.said:
            line = users_line([(frame.f_code.co_filename, at) for frame, at in traceback.walk_stack(None)][::-1])
            where = f"{device} at {line}" if line else str(device)
            self.said.append(f"its code puts tensors on {where}, which is left out: a plan says what runs where")
        return home


def _exists(device: torch.device) -> bool:
    """Whether this machine has a device."""
    backend = getattr(torch, device.type, None)
    if device.type == "cpu" or backend is None or not backend.is_available():
        return device.type == "cpu"
    return device.index is None or device.index < int(backend.device_count())
