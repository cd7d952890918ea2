"""Comparisons by several workers: equal results, whoever is killed; what cannot begin is refused in one sentence."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from envs.plans.placer_result import PlacerResult
from evaluation.comparing.compare import compare
from evaluation.records.journal import plans
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.evaluation.some_placers import Alternating, Killing, Slow
from tests.forked import forked_items
from tests.oracle.toys import toy_cluster, toy_graph

ROOT = Path(__file__).resolve().parents[2]
LONG = 600.0  # seconds, after which a process hangs
KILLED = "its worker process ended each time before it was done (killed, out of memory?)"


def problems(*names: str) -> list[Problem]:
    return [Problem(toy_graph([1, 2], [(0, 1)], name=name), toy_cluster(2)) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3], ids=["a signal", "an exit code"])
def test_a_killed_process_costs_only_the_plan_that_killed_it_each_time(code: int, tmp_path: Path) -> None:
    done = compare(
        [Killing(code=code), Alternating(), Killing("once", once=str(tmp_path / "killed"))],
        problems("easy", "hard", "other"), workers=2, journal=tmp_path / "j.jsonl", quiet=True,
    )  # fmt: skip
    assert [(f.problem, f.placer, f.reason) for f in done.failures] == [("hard@toy2", "killing", KILLED)]
    assert [(r.problem, r.placer) for r in done.records] == [
        *(("easy@toy2", placer) for placer in ("killing", "alternating", "once")),
        ("hard@toy2", "alternating"), ("hard@toy2", "once"),
        *(("other@toy2", placer) for placer in ("killing", "alternating", "once")),
    ]  # fmt: skip
    assert (tmp_path / "killed").exists()


class Locked:
    """Holds what cannot be given to another process."""

    name = "locked"

    def __init__(self) -> None:
        self.held = threading.Lock()

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        return PlacerResult.of_units(problem, [0, 0], self.name, seed)


def test_a_placer_that_no_other_process_can_have_is_a_failure_of_its_own() -> None:
    with forked_items():
        done = compare([Locked(), Alternating()], problems("easy", "other"), workers=2, quiet=True)
    assert [record.placer for record in done.records] == ["alternating"] * 2
    assert done.failures[0].reason.startswith("it cannot be given to another process: ")


def placed(path: Path) -> dict[str, object]:
    """What a journal holds, by key, without the seconds that searches took."""
    return {
        entry.record.key: replace(entry, record=replace(entry.record, search_seconds=0.0), made=UNSET)
        for entry in plans(path)
    }


@pytest.mark.slow  # starts six processes and their imports; journals that are resumed have tests of their own
def test_a_comparison_whose_client_and_then_a_worker_are_killed_equals_one_without_workers(tmp_path: Path) -> None:
    alone, shared, log = tmp_path / "alone.jsonl", tmp_path / "shared.jsonl", tmp_path / "log"
    log.mkdir()
    compare([Slow(log=str(log))], problems("a", "b"), seeds=range(4), journal=alone, quiet=True)
    for each in log.iterdir():
        each.unlink()
    script = tmp_path / "script.py"
    script.write_text(SLOW.format(journal=str(shared), log=str(log)))
    client = started(script)
    wait_for(lambda: shared.exists() and len(plans(shared)) >= 1)
    client.kill()
    client.wait(LONG)
    before = len(plans(shared))
    assert before < 8
    again = started(script)
    wait_for(lambda: len(plans(shared)) > before)
    os.kill(int(newest(log).read_text()), signal.SIGKILL)
    assert again.wait(LONG) == 0
    assert placed(shared) == placed(alone)
    lines = shared.read_bytes().count(b"\n")
    assert lines == 1 + 8, "a finished item was done again"


SLOW = """
from pathlib import Path
from evaluation.comparing.compare import compare
from tests.evaluation.some_placers import Slow
from tests.evaluation.test_workers import problems
if __name__ == "__main__":
    compare([Slow(log={log!r})], problems("a", "b"), seeds=range(4), workers=2, journal=Path({journal!r}), quiet=True)
"""


def started(script: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", script], env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    )


def newest(folder: Path) -> Path:
    """The file that was written last, by an item that is being done or was just finished."""
    return max(folder.glob("*.pid"), key=lambda path: path.stat().st_mtime_ns)


def wait_for(reached: Callable[[], bool]) -> None:
    for _ in range(int(100 * LONG)):
        if reached():
            return
        time.sleep(0.01)
    pytest.fail("it took too long")


SCRIPT = """
from evaluation.comparing.compare import compare
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph
{guard}
    problem = Problem(toy_graph([1, 2], [(0, 1)]), toy_cluster(2))
    print(len(compare(["round_robin", "annealing"], [problem], workers=2, quiet=True).records))
"""


@pytest.mark.slow  # each of its processes imports all
@pytest.mark.parametrize(("guard", "code"), [("if True:", 1), ("if __name__ == '__main__':", 0)])
def test_a_script_without_its_guard_is_refused(guard: str, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, script], env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    if code:
        assert "no worker process could begin: a script that uses several workers must be a file" in done.stderr
    else:
        assert done.stdout == "2\n"
        assert "leaked" not in done.stderr, "ended workers leave nothing behind"


def test_a_process_that_is_about_to_begin_starts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)  # a script runs again
    with pytest.raises(InputError, match="no worker process could begin: a script that uses several workers must be"):
        compare([Alternating()], problems("easy"), workers=2, quiet=True)


def test_a_cluster_that_cannot_begin_says_what_a_script_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Mock(side_effect=RuntimeError("Nanny failed to start."))  # as dask says it
    monkeypatch.setattr("graphs.foundation.dask_engine.LocalCluster", refusal)
    with pytest.raises(InputError, match="no worker process could begin: a script that uses several workers must be"):
        compare([Alternating()], problems("easy", "hard"), workers=2, quiet=True)


def test_no_scheduler_at_an_address_is_one_sentence() -> None:
    with pytest.raises(InputError, match=r"no dask scheduler answers at 'tcp://127.0.0.1:1'; start one with"):
        compare([Alternating()], problems("easy"), workers="tcp://127.0.0.1:1", quiet=True)


def test_without_the_extra_one_process_works_and_several_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphs.foundation.extras.find_spec", lambda name: None)
    assert compare([Alternating()], problems("easy"), quiet=True).records
    for workers in (2, "tcp://127.0.0.1:1"):
        with pytest.raises(InputError, match="more than one worker needs the package distributed: pip install"):
            compare([Alternating()], problems("easy"), workers=workers, quiet=True)


@pytest.mark.parametrize("workers", [0, -3])
def test_no_workers_are_refused(workers: int) -> None:
    with pytest.raises(InputError, match=f"workers is {workers}; expected at least 1"):
        compare([Alternating()], problems("easy"), workers=workers, quiet=True)
