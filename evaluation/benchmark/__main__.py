"""The benchmark's own commands, for who keeps it.

python -m evaluation.benchmark freeze        # once, for a new version: captures and writes all problems
python -m evaluation.benchmark freeze-large  # makes the graphs that the repository leaves out
python -m evaluation.benchmark drift         # captures every problem again, and says what differs
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.benchmark import freezing
from evaluation.benchmark.problem_file import FOLDER, Benchmark
from graphs.foundation.errors import InputError

app = cyclopts.App(name="python -m evaluation.benchmark", help=__doc__, result_action="return_value")
Folder = Annotated[Path, cyclopts.Parameter(help="the folder of the frozen problems")]


@app.command
def freeze(*, out: Folder = FOLDER) -> None:
    """Capture and write all problems, into a folder that holds none."""
    found = freezing.freeze(out)
    print(f"{len(found.index.problems)} problems in {out}")


@app.command
def freeze_large(*, problems: Folder = FOLDER) -> None:
    """Make the graphs that the repository leaves out, and check that they are what was frozen."""
    for path in freezing.make_left_out(Benchmark.load(problems)):
        print(path)


@app.command
def drift(suite: str = "all", *, problems: Folder = FOLDER) -> None:
    """Capture problems again, and say which would differ now; exit code 1 if any would."""
    benchmark = Benchmark.load(problems)
    found = list(freezing.drifted(benchmark, benchmark.chosen(suite)))
    print("\n".join(found) if found else "Nothing has drifted.")
    sys.exit(bool(found))


def main() -> None:
    """Run a command; what is wrong is said in one sentence."""
    try:
        app()
    except InputError as error:
        sys.exit(f"placelab: {error}")


if __name__ == "__main__":
    main()
