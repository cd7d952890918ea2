"""The parts of the study of the released policy: problems and placers.

Each is a comparison with a journal in the study's folder: what is in it is not done again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from evaluation.records.journal import records
from evaluation.records.record import Failure, Record
from evaluation.studies.comparisons import CHEAP, check_policies, compared
from evaluation.studies.frame import Frame
from evaluation.studies.problems import ConditionOptions, Problems, measured_problem, suite_problems
from graphs.formats.msr import is_workload
from graphs.foundation.engine import Workers
from graphs.problem import Problem
from placers import default

GROUPS = 64
FEW = 16  # simulations of placers that choose or search
PROFILES = "profiles"
PARTS = ("heldout", "newfamilies", "clusters", PROFILES)  # suites, but for the profiles

GREEDY, BEST, SEARCH, ANNEALING = "default:samples=1", "default", "annealing:policy=default", "annealing"

# In a folder of profiles. The other workloads are layers with another objective: their transfers cost about a
# thousandth of those in the other files, so that nothing is left to decide for the step time.
WORKLOADS = ("msr/latency/*.json", "msr/throughput/operator_*.json")
LAYER_PROFILES = ("pipedream/*.txt", "dapple/*.txt")
CLUSTER = "p100:devices=4"  # for profiles, which bring no devices

BEST_CHEAP = "the best cheap placer of each graph"  # not a placer's name: the fastest of CHEAP on each problem


def allowed() -> dict[str, int]:
    """The placers, and how much each may simulate."""
    return {**dict.fromkeys((GREEDY, BEST, SEARCH, ANNEALING), FEW), **dict.fromkeys(CHEAP, 1)}


def journal_of(part: str, out: Path, suffix: str = "") -> Path:
    """Where the records of a part are kept."""
    return out / f"{part}-{FEW}{suffix}.jsonl"


def do_part(
    part: str, out: Path, problems: Problems, *, suffix: str = "", seeds: int = 1, workers: Workers = 1
) -> list[Failure]:
    """Do what the journal of a part does not hold yet; failures are tried again each time, and returned.

    Raises InputError if the study's folder is of another policy than the one that is released now.
    """
    default.build()  # refused here if there is none
    check_policies(out, ["default"])
    journal = journal_of(part, out, suffix)
    return compared(journal, allowed(), problems, about=part, seeds=seeds, workers=workers)


def records_of(part: str, out: Path, suffix: str = "") -> list[Record]:
    """What is done of a part. Raises InputError for a damaged journal."""
    return records(journal_of(part, out, suffix), allowed())


def part_of(found: Iterable[Record]) -> Frame:
    """The frame of records by placer, and BEST_CHEAP."""
    return Frame.of(((record.placer, record) for record in found), best_of={BEST_CHEAP: list(CHEAP)})


def missing(found: Frame) -> dict[str, int]:
    """The placers without a plan for some problems of a part (not done yet, or failed), and how many."""
    count = {placer: int(np.isnan(found.means[placer]).sum()) for placer in allowed()}
    return {placer: number for placer, number in count.items() if number}


def problems_of_part(part: str, data: Path | None, **timing: Unpack[ConditionOptions]) -> Problems:
    """Those of a suite, or of the profiles in a folder; none without it, which is said on stderr."""
    if part != PROFILES:
        return suite_problems(part, groups=GROUPS, **timing)
    if not (problems := profile_problems(data, **timing) if data else {}):
        where = f" in {data}" if data else ""
        print(f"there are no profiles{where}: they are left out; --data names a folder of them", file=sys.stderr)
    return problems


def profile_problems(data: Path, **timing: Unpack[ConditionOptions]) -> Problems:
    """What was measured on real machines: workloads on their own devices, layer profiles on four P100's links."""
    workloads = [path for path in _files(data, WORKLOADS) if is_workload(path)]
    layers = [path for path in _files(data, LAYER_PROFILES) if " -- " in path.read_text(encoding="utf-8")]  # no licence
    given = [*((path, "") for path in workloads), *((path, CLUSTER) for path in layers)]
    problems = [measured_problem(str(path), cluster, groups=GROUPS, **timing) for path, cluster in given]
    return {problem.name: partial(_same, problem) for problem in problems}


def _files(data: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(data.glob(pattern))]


def _same(problem: Problem) -> Problem:
    return problem
