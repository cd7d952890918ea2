"""Commands for the benchmark's maintainers, and for searches over programs.

python -m evaluation.benchmark freeze        # once, for a new version: captures and writes all problems
python -m evaluation.benchmark freeze-large  # makes the graphs that the repository leaves out
python -m evaluation.benchmark drift         # captures every problem again, and says what differs
python -m evaluation.benchmark pack FOLDER   # compresses the records of a submission
python -m evaluation.benchmark recount FOLDER  # memory and lower bounds of submitted plans, after rules have changed
python -m evaluation.benchmark best FOLDER   # takes what is faster than the best known plans
python -m evaluation.benchmark write-best FOLDER  # the best known plans as plan files, and a table of them
python -m evaluation.benchmark score PROGRAM.py  # a placer or a move of a search in one file: its score, in 30 s
python -m evaluation.benchmark streams       # placers in 50 ms on streams of changes, against a search of 10 s: an hour
python -m evaluation.benchmark leaderboard   # verifies all submissions of the repository, and makes the page
"""

import math
import sys
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.benchmark import best_known, freezing, program_score, recounting, submission
from evaluation.benchmark.leaderboard import load_submissions, write_leaderboard
from evaluation.benchmark.problem_file import FOLDER, Benchmark
from evaluation.benchmark.stream_results import StreamResults
from evaluation.benchmark.streams import CHANGES, STREAMS
from evaluation.benchmark.streams import streams as changes_in_streams
from evaluation.benchmark.submission import SubmissionFolder
from evaluation.benchmark.suites import BENCHMARKS
from evaluation.records.text_console import TextConsole
from graphs.foundation.errors import InputError, unknown
from graphs.foundation.progress import progress_bar

PAGE = Path("docs/leaderboard.md")

app = cyclopts.App(name="python -m evaluation.benchmark", help=__doc__, result_action="return_value")
Folder = Annotated[Path, cyclopts.Parameter(help="the folder of the frozen problems")]


@app.command
def freeze(*, out: Folder = FOLDER) -> None:
    """Capture and write all problems of the benchmark of the folder's name, into a folder that holds none."""
    if out.name not in BENCHMARKS:
        raise InputError(unknown("benchmark", out.name, BENCHMARKS))
    found = freezing.freeze(out, BENCHMARKS[out.name], name=out.name)
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


@app.command
def pack(*folders: Path) -> None:
    """Compress the records of submissions, as the repository keeps them."""
    for folder in folders:
        print(submission.pack(folder))


@app.command
def recount(*folders: Path, problems: Folder = FOLDER) -> None:
    """Write memory and lower bounds of submitted plans, and of the best known ones, as they are counted now."""
    given = [SubmissionFolder.load(each) for each in folders]
    print("\n".join(recounting.recount(given, Benchmark.load(problems))) or "The same plans fit as before.")


@app.command
def best(*folders: Path, problems: Folder = FOLDER) -> None:
    """Verify submissions, and take what is faster than the best known plans."""
    given = [SubmissionFolder.load(each) for each in folders]
    found = best_known.update_best(Benchmark.load(problems), given)
    print("\n".join(found) if found else "Nothing is faster than what is known.")


@app.command
def write_best(folder: Path, *, suite: str = "all", problems: Folder = FOLDER) -> None:
    """Write the best known plans as plan files, and a table of them."""
    print(best_known.write_best(Benchmark.load(problems), folder, suite))


@app.command
def score(
    program: Path, *, suite: str = "gdp12", budget: int = 200, seconds: float = 2.0, memory_gib: float = 4.0,
    seed: int = 0, problems: Folder = FOLDER,
) -> None:  # fmt: skip
    """Run a placer, `build`, or a move of a local search, `move`, of one file on frozen problems, and print its score.

    That is the mean of the best known step time over the program's; then a line for each problem, with what its step
    waited for. On each problem the program may take `seconds` of the processor, `memory_gib` and `budget` simulations.
    """
    _check_amounts(seed, budget=budget, seconds=seconds, memory_gib=memory_gib)
    limits = program_score.Limits(budget, seconds, memory_gib)
    print(program_score.score_program(program, Benchmark.load(problems), suite, limits=limits, seed=seed))


@app.command
def streams(
    *, count: int = STREAMS, changes: int = CHANGES, milliseconds: float = 50.0, reference_seconds: float = 10.0,
    seed: int = 0, out: Path | None = None,
) -> None:  # fmt: skip
    """Let rivals place running models again, and print what they find over what a search of seconds finds.

    A file `out` keeps what is done, stream by stream, and the same command goes on from there; the leaderboard shows
    that of its benchmark's folder, `streams.json`.
    """
    _check_amounts(seed, count=count, changes=changes, milliseconds=milliseconds, reference_seconds=reference_seconds)
    results = StreamResults.none(seed, changes, milliseconds / 1e3, reference_seconds)
    if out is not None:
        results = results.continued(out)
    done = results.streams
    with progress_bar("placing again", total=count, initial=min(done, count), unit="stream") as bar:
        for stream in changes_in_streams(count, seed=seed, changes=changes, done=done):
            for change in stream:
                results.add(change)
            bar.update()
            if out is not None:
                results.save(out)
    TextConsole().print(results.table())


@app.command
def leaderboard(*, out: Path = PAGE, problems: Folder = FOLDER) -> None:
    """Verify all submissions of the repository, and make the page and its plot, next to it."""
    benchmark = Benchmark.load(problems)
    write_leaderboard(benchmark, load_submissions(benchmark.index.name), out, out.with_suffix(".svg"))


def _check_amounts(seed: int, **amounts: float) -> None:
    """Raise InputError for an amount that is not a finite number above 0, and for a negative seed."""
    for name, amount in amounts.items():
        if not 0 < amount < math.inf:
            raise InputError(f"--{name.replace('_', '-')} is {amount:g}; expected a finite number > 0")
    if seed < 0:
        raise InputError(f"--seed is {seed}; expected a whole number >= 0")


def main() -> None:
    """Run a command; what is wrong is said in one sentence."""
    try:
        app()
    except InputError as error:
        sys.exit(f"placelab: {error}")


if __name__ == "__main__":
    main()
