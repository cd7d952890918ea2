"""Places: the devices of a plan as PyTorch knows them. One device may stand for several."""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphs.cluster import Cluster
from graphs.foundation.errors import InputError, reason

EVERYWHERE = -1  # the place of what lies on a device that stands for several, and was not put on any of these

DeviceLike = str | int | torch.device


class Places:
    """The devices of a plan, and after those others on which tensors have been met, each with its number."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self.devices = list(devices)
        times = Counter(self.devices)
        self._of = {device: EVERYWHERE if times[device] > 1 else place for place, device in enumerate(self.devices)}

    def of(self, device: torch.device) -> int:
        """The place of what lies on a device, as long as nothing else is known of it."""
        if device not in self._of:
            self._of[device] = len(self.devices)
            self.devices.append(device)
        return self._of[device]

    def has(self, tensor: Tensor, place: int) -> bool:
        """Whether a tensor lies on the device that stands for a place."""
        return place == EVERYWHERE or tensor.device == self.devices[place]


def given_devices(devices: Sequence[DeviceLike] | Mapping[str, DeviceLike], cluster: Cluster) -> list[torch.device]:
    """The devices of a cluster, as PyTorch knows them: in its order, or by its names.

    Raises InputError for too few or too many, for an unknown name, and for a device that cannot be used here.
    """
    names = [device.name for device in cluster.devices]
    if isinstance(devices, Mapping):
        if set(devices) != set(names):
            raise InputError(f"devices are given for {_listed(devices)}, and the plan has {_listed(names)}; name each")
        devices = [devices[name] for name in names]
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise InputError(f"devices: expected a list, or a dict by name, for {_listed(names)}; got {devices!r}")
    if len(devices) != len(names):
        raise InputError(f"{len(devices)} devices are given, and the plan has {_listed(names)}; give one for each")
    return [_usable(device) for device in devices]


def _usable(given: DeviceLike) -> torch.device:
    """The device, with its index; tried with an empty tensor."""
    try:
        return torch.empty(0, device=given).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device {given!r} cannot be used here: {reason(error)}; name a device of this machine, such as cpu"
        ) from error


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(map(repr, names)) or "none"
