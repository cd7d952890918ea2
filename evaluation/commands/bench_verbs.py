"""The verbs of the benchmark: run a placer on frozen problems, and verify what others found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from evaluation.commands.arguments import path_or_none, workers_of
from evaluation.commands.switches import CODE, switched
from evaluation.commands.verb_signatures import checked

# Imported late, in each verb: what a verb needs takes up to seconds to import, and --help must not wait for it.
if TYPE_CHECKING:
    from typing import Unpack

    from evaluation.benchmark.row_table import Rows
    from evaluation.commands.arguments import Folders, PathLike, PlacerLike, WorkerOptions


@switched(CODE)
@checked
def bench(
    placer: PlacerLike,
    *,
    out: PathLike,
    suites: str = "gdp12",
    budget: int = 16,
    seed: int = 0,
    title: str = "",
    plans: bool = False,
    problems: PathLike | None = None,
    **options: Unpack[WorkerOptions],
) -> Rows:
    """Run a placer on the frozen problems of the benchmark, and write a submission, which anybody can verify.

    Stopped, the same command resumes.

    Args:
        placer: a placer's spec, or the run folder of a trained one, with `+finetuned` after it to fine-tune.
        out: the folder of the submission.
        suites: `all`, or some with commas between them: `gdp12`, `placeto`, `heldout`, `newfamilies`, `clusters`, whose
            plans are op placements; `pipelines`, `replicas`, `servers`, `unequal`, whose plans are of any kind;
            `large`. Of `placelab-bench-2`, `loop`, `processes`, `tight`, `units`, and `layers`, whose plans are of any
            kind.
        budget: how many placements the placer may simulate on each problem.
        seed: of everything random.
        workers: how many processes to share the problems among; several need the extra `cluster`. The plans are the
            same.
        cluster_address: the dask scheduler whose workers do the work instead, such as `tcp://host:8786`.
        title: what the leaderboard calls it; without it, its spec.
        plans: write a plan file for each problem, too.
        problems: the folder of the frozen problems; without it, `placelab-bench-1` of placelab's repository.

    """
    from evaluation.benchmark.best_known import best_known
    from evaluation.benchmark.problem_file import FOLDER, Benchmark
    from evaluation.benchmark.row_table import Rows
    from evaluation.benchmark.submission import bench as run
    from evaluation.benchmark.submission import save_plans
    from evaluation.benchmark.verification import row_of
    from evaluation.commands.load_placer import load_placer

    folder = path_or_none(problems) or FOLDER
    frozen = Benchmark.load(folder)
    submitted = run(
        load_placer(placer), suites, Path(out), title=title, budget=budget, seed=seed, workers=workers_of(options),
        problems=folder,
    )  # fmt: skip
    if plans:
        save_plans(submitted, frozen)
    said = f"`placelab verify {out}` times these plans again."
    return Rows([row_of(submitted, best_known(frozen))], said)


@checked
def verify(submissions: Folders = (), *, problems: PathLike | None = None) -> Rows:
    """Time every plan of submissions again, refuse what differs from their records, and print their rows.

    Args:
        submissions: folders that `bench` wrote; without any, the best known plans of all problems are verified.
        problems: the folder of the frozen problems; without it, `placelab-bench-1` of placelab's repository.

    """
    from evaluation.benchmark.best_known import best_known, verify_best
    from evaluation.benchmark.problem_file import FOLDER, Benchmark
    from evaluation.benchmark.row_table import Rows
    from evaluation.benchmark.submission import SubmissionFolder
    from evaluation.benchmark.verification import row_of
    from evaluation.benchmark.verification import verify as run

    frozen = Benchmark.load(path_or_none(problems) or FOLDER)
    folders = cast("list[Path]", submissions)
    if not folders:
        count = verify_best(frozen)
        return Rows([], f"The best known plans of {count} problems were timed again: all are as their records say.")
    given = [SubmissionFolder.load(folder) for folder in folders]
    run(given, frozen)
    best = best_known(frozen)
    plans = sum(len(each.entries) for each in given)
    return Rows(
        [row_of(each, best) for each in given], f"{plans} plans were timed again: all are as their records say."
    )
