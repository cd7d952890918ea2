"""The tests of compiled code with its indices checked: `make checked`, or `python -m tests.checked_indices [paths]`.

Compiled functions write to buffers of their callers and do not see where these end: one that is too short is memory
that something else holds. With NUMBA_BOUNDSCHECK=1 numba has them raise IndexError instead. The code is several times
slower and compiled again, into a folder of its own, whose name NUMBA_CACHE_DIR may give.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN_COMPILED_CODE = (
    "tests/oracle", "tests/envs", "tests/placers", "tests/papers", "tests/training", "tests/contracts",
    "tests/evaluation/benchmark",
)  # fmt: skip
CHECK = "NUMBA_BOUNDSCHECK"


def main(paths: Sequence[str], *options: str) -> int:
    """Run the tests of these files and folders so; the exit code of pytest."""
    environment = {"NUMBA_CACHE_DIR": str(Path(tempfile.gettempdir()) / "placelab-checked-indices"), **os.environ}
    asked = [sys.executable, "-m", "pytest", "-q", *options, *(paths or RUN_COMPILED_CODE)]
    return subprocess.run(asked, cwd=ROOT, env={**environment, CHECK: "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
