"""How long a newcomer waits: the first simulation of a new process, and every other compiled function."""

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
begin = time.process_time()
simulator.run([0, 0, 1, 1])
print(time.process_time() - begin)
"""
ALL = """
import time
from evaluation.commands.compile_all import compile_all
begin = time.process_time()
compile_all()
print(time.process_time() - begin)
"""


def measure() -> Iterator[Figure]:
    """Processor seconds of first calls with an empty cache, and with what those left."""
    with tempfile.TemporaryDirectory() as cache:
        yield at_most(6, "first simulation after installation", _seconds(SCRIPT, cache), "s")
        yield at_most(0.5, "first simulation of a later process", min(_seconds(SCRIPT, cache) for _ in range(3)), "s")
    with tempfile.TemporaryDirectory() as cache:
        first = _seconds(ALL, cache)
        yield at_most(30, "every compiled function, as `make setup` does", first - _seconds(ALL, cache), "s")


def _seconds(script: str, cache: str) -> float:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)
