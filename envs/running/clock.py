"""The clock by which processes record when they did what."""

import time

import torch


def finish(device: torch.device) -> None:
    """Wait until a GPU has done what it was asked to; a processor has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def now(device: torch.device) -> float:
    """Seconds by a clock that all processes of a machine share, once the device has done what it was asked to."""
    finish(device)
    return time.perf_counter()
