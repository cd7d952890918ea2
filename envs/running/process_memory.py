"""How much more memory a process takes while it runs steps: what its GPU gave out, or else what was resident.

And how much there is to take.
"""

import math
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEMORY = Path("/proc/meminfo")
PEAK, NOW, FREE = "VmHWM", "VmRSS", "MemAvailable"


class MemoryGrowth:
    """The peak since it was made, over what was held then."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._before = device, math.nan
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before = float(torch.cuda.memory_allocated(device))
        elif STATUS.exists():
            try:
                RESET.write_text("5")  # the peak counts from here (proc(5))
            except OSError:
                return
            self._before = _said(STATUS, NOW)

    def bytes(self) -> float:
        """NaN where the system does not say it."""
        if math.isnan(self._before):
            return math.nan
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device)) - self._before
        return max(_said(STATUS, PEAK) - self._before, 0.0)


def free_bytes(device: torch.device) -> float:
    """How much memory a device has that nobody holds; infinite where the system does not say it."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return _said(MEMORY, FREE) if MEMORY.exists() else math.inf


def _said(file: Path, key: str) -> float:
    """Bytes that a file of the system says after a key, as "VmRSS:   1024 kB"."""
    found = next(line for line in file.read_text().splitlines() if line.startswith(key))
    return 1024.0 * float(found.split()[1])
