"""Checkpointing: what torch.utils.checkpoint computes again during the backward pass runs as it ran at first.

By then the forward pass is over. So each region remembers where in the module it began, and which calls had been made,
and enters the mode again from there.

So does what it draws at random, on whatever device the plan has that: torch.utils.checkpoint keeps the generators of
the processor and of the devices on which the region's arguments are.

torch.utils.checkpoint has no hook for this. Two of its own names are replaced as long as a forward pass runs. What
other threads compute meanwhile is not of the model, and left alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointFunction

Region = Callable[..., Any]
Resume = Callable[[], AbstractContextManager[object]]


@contextmanager
def remembered_regions(resume: Callable[[], Resume | None], devices: Sequence[torch.device]) -> Iterator[None]:
    """Inside, each region asks `resume` where it is, for what it enters when it is computed again on some devices.

    None if the region is not of the model.
    """
    generator, function = checkpoint._checkpoint_without_reentrant_generator, checkpoint.CheckpointFunction
    remembered = partial(_again, resume, devices)

    def generating(region: Region, keeps_random: bool, *args: Any, **kwargs: Any) -> Any:
        return generator(remembered(region, keeps_random), keeps_random, *args, **kwargs)

    checkpoint._checkpoint_without_reentrant_generator = generating  # type: ignore[assignment]
    checkpoint.CheckpointFunction = _Reentrant(remembered)  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        checkpoint._checkpoint_without_reentrant_generator = generator
        checkpoint.CheckpointFunction = function  # type: ignore[misc]


class _Reentrant:
    """In place of `CheckpointFunction`; a class, which is a cycle, would hold copies until garbage is collected."""

    def __init__(self, remembered: Callable[[Region, bool], Region]) -> None:
        self._remembered = remembered

    def apply(self, region: Region, keeps_random: bool, *args: Any) -> Any:
        """As of `CheckpointFunction`."""
        run = _at_first(region, self._remembered(region, keeps_random))
        return CheckpointFunction.apply(run, keeps_random, *args)  # type: ignore[no-untyped-call]


def _again(
    resume: Callable[[], Resume | None], devices: Sequence[torch.device], region: Region, keeps_random: bool
) -> Region:
    """The region, as it is called when it is computed again; made where it is called first."""
    resumed = resume()
    if resumed is None:
        return region
    states = _random_states(devices) if keeps_random else {}

    def again(*args: Any, **kwargs: Any) -> Any:
        with resumed(), _drawn_from(states):
            return region(*args, **kwargs)

    return again


def _at_first(region: Region, again: Region) -> Region:
    """What runs as it is when it is called first, which is within the forward pass."""
    was_called = False

    def run(*args: Any) -> Any:
        nonlocal was_called
        function, was_called = (again if was_called else region), True
        return function(*args)

    return run


def _random_states(devices: Iterable[torch.device]) -> dict[torch.device, Tensor]:
    """What the generators of devices are at, but for that of the processor."""
    return {
        device: torch.get_device_module(device).get_rng_state(device)
        for device in devices
        if device.type not in ("cpu", "meta")
    }


@contextmanager
def _drawn_from(states: Mapping[torch.device, Tensor]) -> Iterator[None]:
    """Inside, random numbers are drawn from there on; afterwards as if none had been."""
    before = _random_states(states)
    _set_random_states(states)
    try:
        yield
    finally:
        _set_random_states(before)


def _set_random_states(states: Mapping[torch.device, Tensor]) -> None:
    for device, state in states.items():
        torch.get_device_module(device).set_rng_state(state, device)
