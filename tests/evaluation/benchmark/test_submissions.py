"""A submission proves itself: the same rows however it was made, and nothing that was changed is taken."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import placelab
from evaluation.benchmark.best_known import FILE, best_known, update_best, verify_best
from evaluation.benchmark.packed import load_packed
from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.recounting import recount
from evaluation.benchmark.submission import PACKED, RECORDS, SUBMISSION, SubmissionFolder, bench, pack
from evaluation.benchmark.verification import row_of, verify
from evaluation.commands.load_placer import load_placer
from evaluation.records.journal import JournalEntry
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer
from tests.evaluation.benchmark import tiny
from tests.forked import forked_items

ROOT = Path(__file__).resolve().parents[3]
BENCHMARK = Benchmark.load(tiny.FOLDER)


def placer(spec: str) -> Placer:
    built: Placer = by_name.build("placers", spec)
    return built


@pytest.fixture
def submitted(tmp_path: Path) -> SubmissionFolder:
    """Of a quick placer on all problems."""
    return bench(placer("random"), "all", tmp_path / "random", budget=4, problems=tiny.FOLDER, quiet=True)


def without_seconds(submitted: SubmissionFolder) -> list[JournalEntry]:
    """What must be the same, however the work was done."""
    return [
        msgspec.structs.replace(
            entry, made=msgspec.UNSET, record=msgspec.structs.replace(entry.record, search_seconds=0.0)
        )
        for entry in submitted.entries
    ]


@pytest.mark.slow
def test_two_workers_give_the_rows_of_one(submitted: SubmissionFolder, tmp_path: Path) -> None:
    with forked_items():
        again = bench(placer("random"), "all", tmp_path / "b", budget=4, workers=2, problems=tiny.FOLDER, quiet=True)
    assert without_seconds(again) == without_seconds(submitted)
    one, two = (row_of(each, {}) for each in (submitted, again))
    assert replace(one, search_seconds=0) == replace(two, search_seconds=0)


def test_a_submission_that_was_killed_goes_on_and_is_the_same(submitted: SubmissionFolder, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(submitted.folder, folder)
    (folder / SUBMISSION).unlink()
    header, first, *_ = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(header + first + first[: len(first) // 2])  # as kill -9 leaves it
    with pytest.raises(InputError, match="was stopped, and the same command resumes"):
        SubmissionFolder.load(folder)
    again = bench(placer("random"), "all", folder, budget=4, problems=tiny.FOLDER, quiet=True)
    assert without_seconds(again) == without_seconds(submitted)
    assert (folder / RECORDS).read_bytes().startswith(header + first), "what was there is not done again"


KILLED = """
import os, signal
from pathlib import Path
from placers.random import Random

class Killed(Random):
    name = "random"

    def place(self, problem, *, seed=0, budget=1):
        if Path("kill").exists() and "v100" in problem.name:
            Path("kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().place(problem, seed=seed, budget=budget)

def build():
    return Killed()
"""


def test_kill_9_of_the_command_loses_nothing_that_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(KILLED)
    Path("kill").touch()
    command = [sys.executable, "-m", "placelab", "bench", "mine.py:build", "--suites", "all", "--budget", "4"]
    command += ["--problems", str(tiny.FOLDER), "--out", "killed"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, capture_output=True).returncode == -signal.SIGKILL
    kept = Path("killed", RECORDS).read_bytes()
    assert 1 <= len(kept.splitlines()) - 1 < 3
    for out in ("killed", "undisturbed"):
        placelab.bench("mine.py:build", suites="all", budget=4, problems=tiny.FOLDER, out=out)
    assert Path("killed", RECORDS).read_bytes().startswith(kept), "what was there is not done again"
    killed, undisturbed = (SubmissionFolder.load(Path(each)) for each in ("killed", "undisturbed"))
    assert without_seconds(killed) == without_seconds(undisturbed)
    verify([killed], BENCHMARK)


def test_a_folder_takes_no_records_of_anything_else(submitted: SubmissionFolder) -> None:
    for other, budget in (("random", 5), ("round_robin", 4)):
        with pytest.raises(InputError, match="records of another placer, suite, seed or budget"):
            bench(placer(other), "all", submitted.folder, budget=budget, problems=tiny.FOLDER, quiet=True)


def test_what_fails_is_said_and_verified(tmp_path: Path) -> None:
    whole = bench(placer("data_parallel"), "all", tmp_path / "whole", problems=tiny.FOLDER, quiet=True)
    assert len(whole.entries) == 1
    assert all("op placements" in each.reason for each in whole.about.failures)
    verify([whole], BENCHMARK)
    assert (row_of(whole, {}).fits, row_of(whole, {}).problems) == (1, 3)
    assert whole.about.made.suite == whole.about.suite_sha256
    assert (whole.about.learns, whole.about.made.cpu != "") == ("no", True)


@pytest.mark.parametrize(
    ("spec", "learns"),
    [
        ("annealing", "no"),
        ("annealing:policy=default", "zero-shot"),
        ("default:samples=1", "zero-shot"),
        ("gdp+finetuned", "per graph"),
    ],
)
def test_a_submission_says_whether_a_policy_takes_part(spec: str, learns: str, tmp_path: Path) -> None:
    made = bench(load_placer(spec), "plans", tmp_path / "made", budget=2, problems=tiny.FOLDER, quiet=True)
    assert made.about.learns == learns
    assert bool(made.about.made.policies) == (learns == "zero-shot")
    assert all(entry.made == made.about.made for entry in made.entries)


def test_records_are_packed_for_a_repository(submitted: SubmissionFolder) -> None:
    assert pack(submitted.folder).name == PACKED
    again = SubmissionFolder.load(submitted.folder)
    assert again.entries == submitted.entries
    verify([again], BENCHMARK)


def of_record(**changes: Any) -> Callable[[list[JournalEntry]], None]:
    """Changes the first record."""

    def change(entries: list[JournalEntry]) -> None:
        record = entries[0].record
        entries[0] = msgspec.structs.replace(entries[0], record=msgspec.structs.replace(record, **changes))

    return change


def plan_of_another_problem(entries: list[JournalEntry]) -> None:
    entries[0] = msgspec.structs.replace(entries[1], record=entries[0].record)


def one_device(entries: list[JournalEntry]) -> None:
    first = entries[0].devices[0]
    entries[0] = msgspec.structs.replace(entries[0], devices=(first,) * len(entries[0].devices))


def one_too_few(entries: list[JournalEntry]) -> None:
    entries.pop(0)


CHANGES: dict[str, tuple[Callable[[list[JournalEntry]], None], str]] = {
    "a time": (
        of_record(step_seconds=1e-9),
        "step_seconds is 1e-09 by its record, and .* when the plan is timed again",
    ),
    "a peak": (of_record(peak_bytes=(1.0, 1.0)), "peak_bytes"),
    "a bound": (of_record(lower_bound_seconds=1e-9), "lower_bound_seconds"),
    "whether it fits": (of_record(fits=False), "the record says that the plan does not fit, and it fits"),
    "a placer": (of_record(placer="mine"), "is of 'mine'"),
    "simulations": (of_record(simulations=99), "99 simulations were taken, and the budget is 4"),
    "a plan": (one_device, "when the plan is timed again"),
    "a plan of another problem": (plan_of_another_problem, "is none for"),
    "a problem that is not there": (of_record(problem="mine@p100"), "is none of suite 'all'"),
    "a plan too few": (one_too_few, "has no plan for 1 problems"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_is_refused(what: str, submitted: SubmissionFolder) -> None:
    change, sentence = CHANGES[what]
    entries = list(submitted.entries)
    change(entries)
    with pytest.raises(InputError, match=sentence):
        verify([replace(submitted, entries=tuple(entries))], BENCHMARK)
    verify([submitted], BENCHMARK)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"suite_sha256": "0" * 64}, "another version of suite 'all'"),
        ({"suites": "ops"}, "another version of suite 'ops'"),
        ({"benchmark": "placelab-bench-0"}, "is a submission to placelab-bench-0"),
        ({"version": 7}, "written as version 7, this placelab reads version 1"),
    ],
)
def test_a_submission_to_anything_else_is_refused(
    changed: dict[str, Any], sentence: str, submitted: SubmissionFolder
) -> None:
    about = msgspec.structs.replace(submitted.about, **changed)
    (submitted.folder / SUBMISSION).write_bytes(msgspec.toml.encode(about))
    with pytest.raises(InputError, match=sentence):
        verify([SubmissionFolder.load(submitted.folder)], BENCHMARK)


@pytest.mark.parametrize(
    "what", [{"peak_bytes": (1.0, 1.0)}, {"fits": False}, {"lower_bound_seconds": 1e-9}], ids=["peaks", "fit", "bound"]
)
def test_what_follows_from_plans_is_counted_again(
    what: dict[str, Any], submitted: SubmissionFolder, tmp_path: Path
) -> None:
    bench_copy = Benchmark.load(Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench")))
    entries = list(submitted.entries)
    of_record(**what)(entries)
    changed = recount([replace(submitted, entries=tuple(entries))], bench_copy)
    assert len(changed) == ("fits" in what)
    counted = load_packed(submitted.folder / PACKED)
    verify([replace(submitted, entries=tuple(counted))], BENCHMARK)
    of_record(step_seconds=1e-9)(entries)
    with pytest.raises(InputError, match="memory and lower bounds alone can be counted again"):
        recount([replace(submitted, entries=tuple(entries))], bench_copy)


def test_the_best_known_are_what_is_fastest_and_fits(submitted: SubmissionFolder, tmp_path: Path) -> None:
    bench_copy = Benchmark.load(Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench")))
    assert len(update_best(bench_copy, [submitted])) == 3
    assert update_best(bench_copy, [submitted]) == []
    assert verify_best(bench_copy) == 3
    assert row_of(submitted, best_known(bench_copy)).over_best.value == pytest.approx(1.0)
    better = bench(placer("annealing"), "all", tmp_path / "annealing", budget=60, problems=tiny.FOLDER, quiet=True)
    improved = update_best(bench_copy, [better])
    assert improved
    best = best_known(bench_copy)
    for entry, other in zip(submitted.entries, better.entries, strict=True):
        least = min(each.record.step_seconds for each in (entry, other) if each.record.fits)
        assert best[entry.record.problem].record.step_seconds == pytest.approx(least)
        assert (best[entry.record.problem].record.placer == "annealing") == (entry.record.problem in improved)
    content = (bench_copy.folder / FILE).read_bytes()
    (bench_copy.folder / FILE).unlink()
    update_best(bench_copy, [submitted, better])
    assert load_packed(bench_copy.folder / FILE)
    assert (bench_copy.folder / FILE).read_bytes() == content, "equal results are equal files"


def test_a_best_known_plan_that_is_not_so_good_is_noticed(submitted: SubmissionFolder, tmp_path: Path) -> None:
    bench_copy = Benchmark.load(Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench")))
    entries = list(submitted.entries)
    of_record(step_seconds=1e-9)(entries)
    with pytest.raises(InputError, match="step_seconds"):
        update_best(bench_copy, [replace(submitted, entries=tuple(entries))])
    assert not (bench_copy.folder / FILE).exists(), "nothing is taken"
