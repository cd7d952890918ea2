"""What a short command costs: processor seconds from the shell and back, mostly spent on importing packages.

Seconds of a processor and not of a clock, which would also count what else the machine does. The captured model is in
the cache and the compiled functions are in theirs: the first round, which is not counted, sees to both.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from tests.benchmarks.figures import Figure, at_most, reported

GRAPH = "bert"  # the family's own default: 342 ops, 64 op groups
PLACE = ("-m", "placelab", "place", GRAPH, "--budget", "0")
BARE, TORCH = ("-c", "pass"), ("-c", "import torch")
COMMANDS: Mapping[str, tuple[Sequence[str], float]] = {  # what is measured, and the most seconds that it may take
    "placelab --help": (("-m", "placelab", "--help"), 0.4),
    "placelab list": (("-m", "placelab", "list"), 0.4),
    "place a captured model by METIS": ((*PLACE, "--placer", "metis"), 1.5),
    "place it by the released policy": (PLACE, 3.0),
}


def measure(rounds: int = 5) -> Iterator[Figure]:
    """Least processor seconds of each command; also as multiples of Python alone, or of importing torch alone."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PLACELAB_CACHE": cache, "OMP_NUM_THREADS": "1"}
        every = {what: arguments for what, (arguments, _) in COMMANDS.items()} | {"bare": BARE, "torch": TORCH}
        least = dict.fromkeys(every, float("inf"))
        for counted in range(rounds + 1):  # they take turns, so that what slows the machine slows all
            for what, arguments in every.items():
                seconds = _processor_seconds(arguments, environment)
                least[what] = min(least[what], seconds) if counted else least[what]
    for what, (_, most) in COMMANDS.items():
        yield at_most(most, f"{what}, processor time", least[what], "s")
    yield reported("placelab --help, of the time of Python alone", least["placelab --help"] / least["bare"])
    policy = least["place it by the released policy"]
    yield reported("place it by the released policy, of the time to import torch", policy / least["torch"])


def _processor_seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """Of the user and of the system, in a Python process with the arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
