"""How much more memory a process takes while it runs steps: what its GPU gave out, or else what was resident."""

from __future__ import annotations

import math
from pathlib import Path

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK, NOW = "VmHWM", "VmRSS"


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
            self._before = _resident(NOW)

    def bytes(self) -> float:
        """NaN where the system does not say it."""
        if math.isnan(self._before):
            return math.nan
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device)) - self._before
        return max(_resident(PEAK) - self._before, 0.0)


def _resident(key: str) -> float:
    found = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return 1024.0 * float(found.split()[1])
