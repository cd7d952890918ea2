"""How many small faults do the tests notice? Mutants drawn at random, each tried on the tests that call its function.

`python -m tests.mutants.run mutants.jsonl --count 300 --seed 0` writes a line for each mutant, resumes where it was
stopped, and ends with those that survived. It first runs the tests once, to learn which of them call what.
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
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.mutants.called import Called
from tests.mutants.mutants import Mutant, drawn

ROOT = Path(__file__).parents[2]
FOLDERS = ("graphs", "envs", "placers")
LIMIT = 600.0  # seconds of a run of tests: a mutant that makes them hang is noticed
MOST = 150.0  # seconds of the tests that a mutant is tried on, as they took before; the quickest first


class Tried(msgspec.Struct, frozen=True):
    """A mutant, and the first file of tests that failed, "" if all passed."""

    mutant: Mutant
    noticed_by: str
    seconds: float
    files: int  # of tests that it was tried on


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of the project, its compiled code with it, in which files may be changed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "placelab"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(".git", ".venv", "runs", "site", ".mypy_cache"))
        yield copy


def covering(mutant: Mutant, called: Called) -> list[str]:
    """The files of tests that call the mutant's function, the quickest first.

    Of a function that none is seen to call, as compiled ones are not: those that call others of its file, or folder.
    """
    function = f"{mutant.file}:{mutant.first_line}"
    for matches in (
        lambda name: name == function,
        lambda name: name.startswith(f"{mutant.file}:"),
        lambda name: name.startswith(f"{Path(mutant.file).parent}/"),
    ):
        files = [file for file, names in called.functions.items() if any(map(matches, names))]
        if files:
            break
    chosen: list[str] = []
    total = 0.0
    for file in sorted(files, key=lambda file: called.seconds[file]):
        total += called.seconds[file]
        if total <= MOST or not chosen:
            chosen.append(file)
    return chosen


def is_compiled(copy: Path, mutant: Mutant) -> bool:
    """Whether machine code of other files may hold what the mutant changes, so that nothing compiled may be kept."""
    return "numba" in (copy / mutant.file).read_text() or "compiled" in (copy / mutant.file).read_text()


def tried(mutant: Mutant, copy: Path, called: Called) -> Tried:
    """Run the tests of a mutant until one fails."""
    path, began = copy / mutant.file, time.monotonic()
    fine = path.read_text()
    files = covering(mutant, called)
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as compiled:
        if is_compiled(copy, mutant):
            environment["NUMBA_CACHE_DIR"] = compiled
        path.write_text(mutant.source(fine))
        try:
            first = failing(files, copy, environment)
        finally:
            path.write_text(fine)
    return Tried(mutant, first, round(time.monotonic() - began, 1), len(files))


def failing(files: Sequence[str], copy: Path, environment: Mapping[str, str]) -> str:
    """The first test that fails, or "" if all pass; "no test" if there is none."""
    if not files:
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", *files]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
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


def learned(path: Path) -> Called:
    """Which tests call what: as written before, or by running all once."""
    if not path.exists():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.called", "--called", str(path), "tests"]
        subprocess.run(command, cwd=ROOT, check=True)
    return msgspec.json.decode(path.read_bytes(), type=Called)


def main(out: Path, count: int, seed: int) -> int:
    """Try mutants, and print those that survived."""
    called = learned(out.with_suffix(".called.json"))
    before = [msgspec.json.decode(line, type=Tried) for line in out.read_bytes().splitlines()] if out.exists() else []
    done = {each.mutant: each for each in before}
    mutants = drawn(ROOT, FOLDERS, count, seed)
    with copied(ROOT) as copy, out.open("ab") as file:
        for number, mutant in enumerate(mutants, start=1):
            if mutant not in done:
                done[mutant] = tried(mutant, copy, called)
                file.write(msgspec.json.encode(done[mutant]) + b"\n")
                file.flush()
                print(f"{number} of {count}: {mutant}: {done[mutant].noticed_by or 'SURVIVED'}", flush=True)
    survived = [mutant for mutant in mutants if not done[mutant].noticed_by]
    print("\n".join(["", *map(str, survived), f"{len(survived)} of {count} survived"]))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a line of JSON for each mutant")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.exit(main(given.out, given.count, given.seed))
