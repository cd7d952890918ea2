"""How much more memory a process takes while it runs steps: what PyTorch gave out of its GPU, or what was resident.

Of a GPU PyTorch reserves more than it gives out, in blocks. What it has reserved decides what still fits.

And how much there is to take.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEMORY = Path("/proc/meminfo")
PEAK, NOW, FREE = "VmHWM", "VmRSS", "MemAvailable"


@dataclass(frozen=True)
class Growth:
    """The most bytes that were held beyond those before; NaN where the system does not say it."""

    held: float
    reserved: float  # by PyTorch, of a GPU


class MemoryGrowth:
    """The peak since it was made, over what was held then."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, Growth(math.nan, math.nan)
        if device.type != "cpu":
            torch.accelerator.reset_peak_memory_stats(device)
            self._before = Growth(
                float(torch.accelerator.memory_allocated(device)), float(torch.accelerator.memory_reserved(device))
            )
        elif STATUS.exists():
            try:
                RESET.write_text("5")  # the peak counts from here (proc(5))
            except OSError:
                return
            self._before = Growth(_said(STATUS, NOW), math.nan)

    def growth(self) -> Growth:
        """Until now."""
        before = self._before
        if self._device.type != "cpu":
            return Growth(
                torch.accelerator.max_memory_allocated(self._device) - before.held,
                torch.accelerator.max_memory_reserved(self._device) - before.reserved,
            )
        held = math.nan if math.isnan(before.held) else max(_said(STATUS, PEAK) - before.held, 0.0)
        return Growth(held, math.nan)


def free_bytes(device: torch.device) -> float:
    """How much memory a device has that nobody holds; infinite where the system does not say it."""
    if device.type != "cpu":
        return float(torch.accelerator.get_memory_info(device)[0])
    return _said(MEMORY, FREE) if MEMORY.exists() else math.inf


def _said(file: Path, key: str) -> float:
    """Bytes that a file of the system says after a key, as "VmRSS:   1024 kB"."""
    found = next(line for line in file.read_text().splitlines() if line.startswith(key))
    return 1024.0 * float(found.split()[1])
