"""The parts of the study of the released policy: problems, placers, and numbers of simulations.

Each is a comparison, or several with different budgets, and each comparison has a journal in the study's folder: what
is in it is not done again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from evaluation.records.journal import records
from evaluation.records.record import Failure, Record
from evaluation.studies.comparisons import CHEAP, check_policies, compared
from evaluation.studies.frame import Frame, family_of
from evaluation.studies.problems import ConditionOptions, Problems, measured_problem, suite_problems
from graphs.files.suites import KEPT_ASIDE
from graphs.formats.msr import is_workload
from graphs.foundation.engine import Workers
from graphs.problem import Problem
from placers import default

GROUPS = 64
FEW = 16  # simulations of placers that choose or search
REFERENCE = 20_000  # simulations of the annealing that shows what can be reached
PROFILES, CURVES = "profiles", "curves"
PARTS = ("heldout", "newfamilies", "clusters", PROFILES, CURVES)  # suites, but for the profiles; the longest last

GREEDY, BEST, SEARCH, ANNEALING = "default:samples=1", "default", "annealing:policy=default", "annealing"
TUNED, CLIMBING = "default+finetuned", "hill_climbing"
SEARCHES: dict[int, tuple[str, ...]] = {  # the placers of the curves, by simulations
    FEW: (TUNED, CLIMBING),  # in addition to the two in every part
    **dict.fromkeys((100, 1000, 2000), (ANNEALING, SEARCH, TUNED, CLIMBING)),
    REFERENCE: (ANNEALING, SEARCH),
}

# In a folder of profiles. The other workloads are layers with another objective: their transfers cost about a
# thousandth of those in the other files, so that nothing is left to decide for the step time.
WORKLOADS = ("msr/latency/*.json", "msr/throughput/operator_*.json")
LAYER_PROFILES = ("pipedream/*.txt", "dapple/*.txt")
CLUSTER = "p100:devices=4"  # for profiles, which bring no devices


class Entry(NamedTuple):
    """A placer, and what the searches of its comparison may simulate."""

    placer: str
    budget: int = FEW


BEST_CHEAP = Entry("the best cheap placer of each graph")  # not a placer's name: the fastest of CHEAP on each problem
LONG_SEARCH = Entry(ANNEALING, REFERENCE)


def budgets(part: str) -> dict[int, dict[str, int]]:
    """Of each journal of a part, by what searches may simulate: the placers, and how much each may simulate."""
    first = {**dict.fromkeys((GREEDY, BEST, SEARCH, ANNEALING), FEW), **dict.fromkeys(CHEAP, 1)}
    if part != CURVES:
        return {FEW: first}
    journals = {count: dict.fromkeys(placers, count) for count, placers in SEARCHES.items()}
    return {**journals, FEW: first | journals[FEW]}


def journal_of(part: str, budget: int, out: Path, suffix: str = "") -> Path:
    """Where the records of a comparison are kept."""
    return out / f"{part}-{budget}{suffix}.jsonl"


def do_part(
    part: str, out: Path, problems: Problems, *, suffix: str = "", seeds: int = 1, workers: Workers = 1
) -> list[Failure]:
    """Do what the journals of a part do not hold yet; failures are tried again each time, and returned.

    Raises InputError if the study's folder is of another policy than the one that is released now.
    """
    default.build()  # refused here if there is none
    check_policies(out, {"default": default.RELEASED})
    failures: list[Failure] = []
    for budget, allowed in budgets(part).items():
        journal, about = journal_of(part, budget, out, suffix), f"{part}, {budget} simulations"
        failures += compared(journal, allowed, problems, about=about, seeds=seeds, workers=workers)
    return failures


def records_of(part: str, out: Path, suffix: str = "") -> dict[int, list[Record]]:
    """What is done of a part, by what searches may simulate. Raises InputError for a damaged journal."""
    return {n: records(journal_of(part, n, out, suffix), allowed) for n, allowed in budgets(part).items()}


def part_of(found: Mapping[int, Iterable[Record]]) -> Frame:
    """The frame of records by the budget of searches: its placers are entries, or BEST_CHEAP."""
    named = ((Entry(record.placer, budget), record) for budget, some in found.items() for record in some)
    return Frame.of(named, best_of={BEST_CHEAP: [Entry(placer) for placer in CHEAP]})


def missing(part: str, found: Frame) -> dict[Entry, int]:
    """The entries without a plan for some problems of a part (not done yet, or failed), and how many."""
    every = (Entry(placer, budget) for budget, allowed in budgets(part).items() for placer in allowed)
    count = {entry: int(np.isnan(found.means[entry]).sum()) for entry in every}
    return {entry: number for entry, number in count.items() if number}


def is_kept_aside(problem: str) -> bool:
    """Whether the policy was trained on no model of the family."""
    return family_of(problem) in KEPT_ASIDE


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
