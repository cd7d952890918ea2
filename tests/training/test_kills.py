"""kill -9 of any worker, and of the client, at random moments: what was finished stays, the rest completes, equal."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from evaluation.records.journal import plans
from tests.training.metrics_lines import metrics_lines

ROOT = Path(__file__).resolve().parents[2]
LONG = 600.0  # seconds, after which a process hangs
BETWEEN = 0.5, 6.0  # seconds from a kill to the next, or from a start: some fall into starting, most into work

TRAINING = """
from pathlib import Path
from placers.learned.settings import Imitation, Ppo
from training.runs import resources as resources_module
from training.runs import train as training
from training.recipe import ProblemSet, Recipe, Validation
from training.runs.resources import Resources
from training.problems.random.settings import World

training.CHECKPOINT_EVERY = 1
resources_module.WORTH_SENDING = 0.0  # even small ones
recipe = Recipe(
    placer="sequential", network="sequential:width=16,heads=2,hidden=16,sage_layers=1",
    problems=ProblemSet(world=World(problems=8, units=(12, 24), devices=(2, 3), held_out=("fan", "tiles"))),
    validation=Validation(every=10, problems=3),
    ppo=Ppo(updates={updates}, problems_per_update=4, samples=4, reward="log"),
    imitation=Imitation(simulations=300 * {updates}, updates={updates}, weight=0.1, again=1),
)
if __name__ == "__main__":
    out = Path({out!r})
    begun = (out / "config.toml").is_file()
    training.train(recipe, out=out, seed=2, resume=begun, loggers=(), resources=Resources({workers}))
"""
COMPARISON = """
from pathlib import Path
from evaluation.comparing.compare import compare
from tests.oracle.toys import random_graph, toy_cluster
from graphs.problem import Problem

if __name__ == "__main__":
    out = Path({out!r})
    out.mkdir(exist_ok=True)
    problems = [Problem(random_graph(ops, seed=ops), toy_cluster(3)) for ops in range(40, 48)]
    compare(
        ["annealing", "genetic"], problems, budget=40 * {updates}, seeds=range({updates} // 2), workers={workers},
        journal=out / "j.jsonl", quiet=True,
    )
"""
FEW, MANY = 4, 100  # updates, and likewise for comparisons: some minutes, longer than ten kills


def started(script: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", script], env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True
    )


def workers_of(client: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Its worker processes, not the one that tracks what they share."""
    try:
        children = psutil.Process(client.pid).children()
        return [each for each in children if any("spawn_main" in word for word in each.cmdline())]
    except psutil.Error:
        return []


def ends(client: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        client.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def disturbed(script: Path, whom: str, kills: int, finished: Callable[[], int]) -> int:
    """Run a script to its end and kill one of its workers, or itself, which is then started again; how often it was.

    What `finished` counts never becomes less.
    """
    rng, client, killed, before = random.Random(7), started(script), 0, 0
    while killed < kills and not ends(client, rng.uniform(*BETWEEN)):
        if whom == "client":
            os.kill(client.pid, signal.SIGKILL)
            client.wait(LONG)
            assert finished() >= before
            before, client = finished(), started(script)
        elif workers := workers_of(client):
            rng.choice(workers).kill()
        killed += 1
    assert client.wait(LONG) == 0
    return killed


def journal(path: Path) -> dict[str, object]:
    """What it holds, by key, without the seconds that searches took."""
    return {
        entry.record.key: replace(entry, record=replace(entry.record, search_seconds=0.0), made=UNSET)
        for entry in plans(path)
    }


@pytest.mark.parametrize(
    ("whom", "kills", "size"),
    [("worker", 1, FEW), ("worker", 10, MANY), ("client", 10, MANY)],
)
@pytest.mark.slow
def test_a_labelled_training_ends_as_without_kills(whom: str, kills: int, size: int, tmp_path: Path) -> None:
    alone, shared, script = tmp_path / "alone", tmp_path / "shared", tmp_path / "script.py"
    script.write_text(TRAINING.format(out=str(alone), workers=1, updates=size))
    assert started(script).wait(LONG) == 0
    script.write_text(TRAINING.format(out=str(shared), workers=2, updates=size))
    assert disturbed(script, whom, kills, lambda: 0) == kills
    for file in ("trainer.safetensors", "policy.safetensors", "validation.jsonl"):
        assert (shared / file).read_bytes() == (alone / file).read_bytes(), file
    assert metrics_lines(shared) == metrics_lines(alone)
    assert (shared / "metrics.jsonl").read_bytes().count(b"\n") == size


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["worker", "client"])
def test_a_comparison_ends_as_without_kills(whom: str, tmp_path: Path) -> None:
    alone, shared, script = tmp_path / "alone", tmp_path / "shared", tmp_path / "script.py"
    script.write_text(COMPARISON.format(out=str(alone), workers=1, updates=MANY))
    assert started(script).wait(LONG) == 0
    script.write_text(COMPARISON.format(out=str(shared), workers=2, updates=MANY))
    file = shared / "j.jsonl"
    assert disturbed(script, whom, 10, lambda: len(plans(file)) if file.exists() else 0) == 10
    assert journal(file) == journal(alone / "j.jsonl")
    assert file.read_bytes().count(b"\n") == 1 + len(journal(file)), "a finished item was done again"
