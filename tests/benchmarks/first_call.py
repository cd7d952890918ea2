"""How long a newcomer waits: the first simulation of a new process, before anything is compiled and after."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.benchmarks.figures import Figure, at_most

SCRIPT = """
import sys, time
import graphs, envs
from envs.simulation.simulator import Simulator
assert "torch" not in sys.modules
from tests.oracle.toys import four_ops_two_devices
simulator = Simulator(four_ops_two_devices().problem)
begin = time.perf_counter()
simulator.run([0, 0, 1, 1])
print(time.perf_counter() - begin)
"""


def measure() -> Iterator[Figure]:
    """Seconds of the first call with an empty cache, and with what that one left."""
    with tempfile.TemporaryDirectory() as cache:
        yield at_most(5, "first call after installation", _first_call(cache), "s")
        yield at_most(0.5, "first call of a later process", min(_first_call(cache) for _ in range(3)), "s")


def _first_call(cache: str) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
