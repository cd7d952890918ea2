"""Checkpointing: what torch.utils.checkpoint computes again during the backward pass runs as it ran at first.

By then the forward pass is over. So each region remembers where in the module it began, and which calls had been made,
and enters the mode again from there.

So does what it draws at random, on whatever device the plan has that: torch.utils.checkpoint keeps the generators of
the processor and of the devices on which the region's arguments are.

torch.utils.checkpoint has no hook for this. Two of its own names are replaced as long as a forward pass runs, in any
thread. What other threads compute meanwhile is not of the model, and left alone.

Autograd computes again in threads of its own, one for each GPU, while a forward pass may wait for them: one that calls
`torch.autograd.grad`. So no thread has what another one waits for but generators, which are the same for all, while it
draws; and not while it waits for autograd itself (`drawing_by_others`).
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint
from torch.utils.checkpoint import CheckpointFunction

Region = Callable[..., Any]
Resume = Callable[[], AbstractContextManager[object]]


class _Thread(threading.local):
    """What runs in a thread."""

    def __init__(self) -> None:
        self.passes: list[tuple[Callable[[], Resume], Sequence[torch.device]]] = []  # the innermost last
        self.draws = False  # generators are this thread's


_thread = _Thread()
_drawing = threading.Lock()  # by the thread whose generators are
_replacing = threading.Lock()
_passes = 0  # in all threads
_own_generator = checkpoint._checkpoint_without_reentrant_generator


@contextmanager
def remembered_regions(resume: Callable[[], Resume], devices: Sequence[torch.device]) -> Iterator[None]:
    """Inside, regions of this thread ask `resume` where they are, for what is entered when they are computed again.

    The random numbers of `devices` are drawn again, too.
    """
    _thread.passes.append((resume, devices))
    _count_passes(1)
    try:
        yield
    finally:
        _count_passes(-1)
        _thread.passes.pop()


def _count_passes(more: int) -> None:
    """Let regions ask as long as there are passes."""
    global _passes
    with _replacing:
        _passes += more
        function = _Reentrant() if _passes else CheckpointFunction
        checkpoint._checkpoint_without_reentrant_generator = _generating if _passes else _own_generator  # type: ignore[assignment]
        checkpoint.CheckpointFunction = function  # type: ignore[assignment,misc]


def _generating(region: Region, keeps_random: bool, *args: Any, **kwargs: Any) -> Any:
    """In place of `_checkpoint_without_reentrant_generator`."""
    return _own_generator(_remembered(region, keeps_random), keeps_random, *args, **kwargs)


class _Reentrant:
    """In place of `CheckpointFunction`; a class, which is a cycle, would hold copies until garbage is collected."""

    def apply(self, region: Region, keeps_random: bool, *args: Any) -> Any:
        """As of `CheckpointFunction`."""
        run = _at_first(region, _remembered(region, keeps_random))
        return CheckpointFunction.apply(run, keeps_random, *args)  # type: ignore[no-untyped-call]


def _remembered(region: Region, keeps_random: bool) -> Region:
    """The region, as it is called when it is computed again; made where it is called first."""
    for resume, devices in reversed(_thread.passes):
        region = _again(resume(), devices, region, keeps_random)
    return region


def _again(resumed: Resume, devices: Sequence[torch.device], region: Region, keeps_random: bool) -> Region:
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
    """Inside, random numbers are drawn from there on, by this thread alone; afterwards as if none had been."""
    if not states:
        yield
        return
    with _drawing_alone():
        before = _random_states(states)
        _set_random_states(states)
        try:
            yield
        finally:
            _set_random_states(before)


@contextmanager
def _drawing_alone() -> Iterator[None]:
    """Inside, no other thread computes again what draws."""
    if _thread.draws:  # a region within another one
        yield
        return
    with _drawing:
        _thread.draws = True
        try:
            yield
        finally:
            _thread.draws = False


@contextmanager
def drawing_by_others() -> Iterator[None]:
    """Inside, this thread waits for others, which may compute again and draw; they leave generators as they were."""
    if not _thread.draws:
        yield
        return
    _thread.draws = False
    _drawing.release()
    try:
        yield
    finally:
        _drawing.acquire()
        _thread.draws = True


def _set_random_states(states: Mapping[torch.device, Tensor]) -> None:
    for device, state in states.items():
        torch.get_device_module(device).set_rng_state(state, device)
