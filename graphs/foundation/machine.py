"""What a result was made with: versions of libraries, and the processor."""

import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("placelab", "torch", "torch-geometric", "numpy", "numba")


def library_versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    return {"python": sys.version.split()[0], **{package: version(package) for package in PACKAGES}}


@cache
def processor_name() -> str:
    """The processor's name, where the system gives it; else its architecture."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
