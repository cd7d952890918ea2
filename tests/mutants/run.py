"""How many small faults do the tests notice? Mutants drawn at random, each tried on the tests that call its function.

`python -m tests.mutants.run mutants.jsonl --count 300 --seed 0` writes a line for each mutant, resumes where it was
stopped, and ends with those that survived. It first runs the tests once, to learn which of them call what; what was
learned, and what was tried, holds for the same sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import msgspec

from tests.mutants import called, imports
from tests.mutants.called import Called
from tests.mutants.imports import CALLS, FOLDERS, MUTANT, PROJECT
from tests.mutants.mutants import Mutant, drawn

LIMIT = 300.0  # seconds of a run of tests: a mutant that makes them hang is noticed
FIRST = 6.0  # seconds of the tests that are tried before the others: most mutants are noticed there
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


class Tried(msgspec.Struct, frozen=True):
    """A mutant, and the first test that failed, "" if all passed."""

    mutant: Mutant
    noticed_by: str
    seconds: float
    tests: int  # that it was tried on
    most: float  # seconds of tests that it might be tried on


@contextmanager
def copied(project: Path) -> Iterator[Path]:
    """A copy of the project, its compiled code with it, which nobody changes meanwhile."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "placelab"
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".git", ".venv", "runs", "site", ".mypy_cache"))
        yield copy


def covering(mutant: Mutant, known: Called, most: float) -> list[str]:
    """The tests that call the mutant's function, the quickest first, as many as take `most` seconds, and at least one.

    Of a function that none is seen to call, as compiled ones are not: those that call others of its file, or folder.
    """
    function = f"{mutant.file}:{mutant.first_line}"
    for begins in (function, f"{mutant.file}:", f"{Path(mutant.file).parent}/"):
        exact = begins == function
        tests = [
            test
            for test, names in known.functions.items()
            if (begins in names if exact else any(name.startswith(begins) for name in names))
        ]
        if tests:
            break
    return within(sorted(tests, key=lambda test: known.seconds[test]), known, most)


def within(tests: Sequence[str], known: Called, most: float) -> list[str]:
    """The first tests, as many as take `most` seconds together, and at least one."""
    total = accumulate(known.seconds[test] for test in tests)
    return [
        test for number, (test, seconds) in enumerate(zip(tests, total, strict=True)) if seconds <= most or not number
    ]


def tried(mutant: Mutant, known: Called, root: Path, most: float) -> Tried:
    """Run the tests of a mutant until one fails."""
    began = time.monotonic()
    tests = covering(mutant, known, most)
    few = within(tests, known, FIRST)
    with tempfile.TemporaryDirectory() as site:
        settings = {MUTANT: msgspec.json.encode(mutant).decode()}
        if mutant.is_compiled:  # what is kept belongs to the file as it is
            settings["NUMBA_CACHE_DIR"] = site
        environment = imports.environment(Path(site), root, **settings)
        # Apart, since pytest imports the files of all tests before it runs one; then those of one file together.
        first = failing(sorted(few), root, environment) or failing(sorted(tests[len(few) :]), root, environment)
    return Tried(mutant, first, round(time.monotonic() - began, 1), len(tests), most)


def failing(tests: Sequence[str], root: Path, environment: Mapping[str, str]) -> str:
    """The first test that fails, or "" if all pass or there is none."""
    if not tests:
        return ""
    command = [*PYTEST, "-x", *tests]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=root, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload]
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "they hang"
    if process.returncode in (0, 5):
        return ""
    failed = [line.split()[1] for line in out.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else f"exit code {process.returncode}"


def learned(path: Path, root: Path) -> Called:
    """Which tests call what: as written before, or by running all once."""
    if not path.exists():
        with tempfile.TemporaryDirectory() as site:
            environment = imports.environment(Path(site), root, **{CALLS: site})
            command = [*PYTEST, "-p", "tests.mutants.called", "-n", "2", "--dist", "loadfile", "tests"]
            subprocess.run(command, cwd=root, env=environment)  # a test that fails called something
            shutil.copy(Path(site) / "calls", path)
    return called.read(path)


def main(out: Path, count: int, seed: int, processes: int, most: float) -> int:
    """Try mutants, and print those that survived; those that survived fewer tests before are tried again."""
    before = [msgspec.json.decode(line, type=Tried) for line in out.read_bytes().splitlines()] if out.exists() else []
    done = {each.mutant: each for each in before if each.noticed_by or each.most >= most}
    with copied(PROJECT) as root, ThreadPoolExecutor(processes) as pool, out.open("ab") as file:
        known = learned(out.with_suffix(".calls"), root)
        mutants = drawn(root, FOLDERS, count, seed)
        running = [pool.submit(tried, mutant, known, root, most) for mutant in mutants if mutant not in done]
        for each in (future.result() for future in as_completed(running)):
            done[each.mutant] = each
            file.write(msgspec.json.encode(each) + b"\n")
            file.flush()
            print(f"{len(done)} of {count}: {each.mutant}: {each.noticed_by or 'SURVIVED'}", flush=True)
    survived = [mutant for mutant in mutants if not done[mutant].noticed_by]
    print("\n".join(["", *map(str, survived), f"{len(survived)} of {count} survived"]))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a line of JSON for each mutant")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="mutants tried at a time")
    parser.add_argument("--most", type=float, default=60.0, help="seconds of the tests that a mutant is tried on")
    given = parser.parse_args()
    sys.exit(main(given.out, given.count, given.seed, given.processes, given.most))
