"""Jobs in several processes: what kills its process loses nothing else, and a missing guard is distinguished."""

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from envs.placer_result import PlacerResult
from evaluation.compare import compare
from evaluation.process_pool import in_processes
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.evaluation.some_placers import Alternating, Killing
from tests.oracle.toys import toy_cluster, toy_graph

ROOT = Path(__file__).resolve().parents[2]
LONG = 600.0  # seconds, which no test waits for
KILLED = "its process was killed (signal 9, out of memory?)"


def problems(*names: str) -> list[Problem]:
    return [Problem(toy_graph([1, 2], [(0, 1)], name=name), toy_cluster(2)) for name in names]


def test_every_job_is_done_and_comes_once_with_its_result() -> None:
    assert sorted(in_processes(abs, [-3, 1, 2], 2)) == [(-3, 3), (1, 1), (2, 2)]


def test_what_a_job_raises_is_raised_and_ends_all() -> None:
    found = in_processes(time.sleep, [LONG, 0.0, -1.0], 2)
    assert next(found) == (0.0, None)
    with pytest.raises(ValueError, match="must be non-negative"):
        next(found)


def test_all_end_when_no_one_waits_for_them() -> None:
    with closing(in_processes(time.sleep, [0.0, LONG], 2)) as found:
        assert next(found) == (0.0, None)


def test_a_killed_process_costs_only_the_plan_that_killed_it_twice(tmp_path: Path) -> None:
    done = compare(
        [Killing(), Alternating(), Killing("once", once=str(tmp_path / "killed")), Killing("ending", code=3)],
        problems("easy", "hard", "other"), workers=2, journal=tmp_path / "j.jsonl", quiet=True,
    )  # fmt: skip
    assert [(f.problem, f.placer, f.reason) for f in done.failures] == [
        ("hard@toy2", "killing", KILLED), ("hard@toy2", "ending", "it ended its process (exit code 3)")
    ]  # fmt: skip
    assert [(r.problem, r.placer) for r in done.records] == [
        *(("easy@toy2", placer) for placer in ("killing", "alternating", "once", "ending")),
        ("hard@toy2", "alternating"), ("hard@toy2", "once"),
        *(("other@toy2", placer) for placer in ("killing", "alternating", "once", "ending")),
    ]  # fmt: skip
    assert (tmp_path / "killed").exists()


@dataclass(frozen=True)
class Unpicklable:
    """Holds what cannot be given to another process."""

    name: str = "unpicklable"
    held: object = lambda: 0

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        return PlacerResult.of_units(problem, [0, 0], self.name, seed)


def test_a_placer_that_no_other_process_can_have_is_a_failure_of_its_own() -> None:
    held = Unpicklable(held=lambda: 0)
    done = compare([held, Alternating()], problems("easy"), workers=2, quiet=True)
    assert [record.placer for record in done.records] == ["alternating"]
    assert done.failures[0].reason.startswith("it cannot be given to another process: ")


SCRIPT = """
from evaluation.compare import compare
from evaluation.process_pool import in_processes
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph
{guard}
    problem = Problem(toy_graph([1, 2], [(0, 1)]), toy_cluster(2))
    print(len(compare(["round_robin", "single_device"], [problem], workers=2, quiet=True).records))
"""


@pytest.mark.parametrize(("guard", "code"), [("if True:", 1), ("if __name__ == '__main__':", 0)])
def test_a_script_without_its_guard_is_refused(guard: str, code: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    if code:
        assert "no worker process could begin: a script that uses several workers must be a file" in done.stderr
    else:
        assert done.stdout == "2\n"


@pytest.mark.parametrize("workers", [0, -3])
def test_no_workers_are_refused(workers: int) -> None:
    with pytest.raises(InputError, match=f"workers is {workers}; expected at least 1"):
        compare([Alternating()], problems("easy"), workers=workers, quiet=True)
