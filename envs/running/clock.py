"""The clock by which processes record when they did what.

Nobody waits to know the time within a step. To wait for a GPU is to wait for all that it was asked for, also for
messages whose senders may be waiting themselves. So a GPU marks when it gets to a place in what it was given, and says
when that was once the step is over.
"""

import time
from collections.abc import Iterable
from typing import TypeVar

import torch

Mark = float | torch.Event
"""Seconds by a clock that all processes of a machine share or, until they are read, what a GPU will say they were."""
What = TypeVar("What")


def finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked to; a processor has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def now(device: torch.device) -> float:
    """The time, once the device has done what it was asked to, messages included."""
    finish(device)
    return time.perf_counter()


def mark(device: torch.device) -> Mark:
    """The time when the device will have computed what it was given so far; nobody waits for it."""
    if device.type == "cpu":
        return time.perf_counter()
    event = torch.Event(device, enable_timing=True)
    event.record(torch.accelerator.current_stream(device))
    return event


def read(noted: Iterable[tuple[What, Mark, Mark]], device: torch.device) -> list[tuple[What, float, float]]:
    """What was noted, with the seconds of its marks; waits for the device, of which nothing may be left to receive."""
    latest = mark(device)
    ended = now(device)

    def seconds(each: Mark) -> float:
        return each if isinstance(each, float) else ended - float(each.elapsed_time(latest)) / 1e3  # type: ignore[arg-type]

    return [(what, seconds(start), seconds(end)) for what, start, end in noted]
