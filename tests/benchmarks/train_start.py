"""How long `placelab train` takes before its first update: processor seconds, with no graph kept and with all of them.

The compiled functions are there in both; the first round, which is not counted, sees to that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.figures import Figure, at_most

RECIPE = "sequential"  # 768 problems of 32 graphs
# The run ends where its first update would begin, and says what it took.
BEGIN = """
import sys, time
from pathlib import Path
from training.recipe import load_recipe
from training.runs import seeds, train

class Begun(Exception):
    pass

def begin(*_):
    raise Begun

assert train._run, "what does all updates"
train._run = begin
try:
    seeds.train_runs(load_recipe(sys.argv[1]), "run", out=Path(sys.argv[2]), seed=0, seeds=1, command=[], resume=False)
except Begun:
    print(time.process_time())
"""


def measure(recipe: str = RECIPE, rounds: int = 3) -> Iterator[Figure]:
    """Least processor seconds before the first update of a recipe."""
    with tempfile.TemporaryDirectory() as folder:
        _begin(recipe, Path(folder, "first"), Path(folder, "compiles"))
        cold = _begin(recipe, Path(folder, "cache"), Path(folder, "cold"))
        warm = min(_begin(recipe, Path(folder, "cache"), Path(folder, f"warm{i}")) for i in range(rounds))
    yield at_most(20, f"train {recipe}, processor time before its first update, models captured", cold, "s")
    yield at_most(5, "... the second time", warm, "s")


def _begin(recipe: str, cache: Path, out: Path) -> float:
    """Processor seconds of a run up to its first update."""
    environment = {**os.environ, "PLACELAB_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BEGIN, recipe, str(out)]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(ended.stdout)
