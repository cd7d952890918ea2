"""The parts of the study of the released policy: problems and placers.

Each is a comparison with two journals in the study's folder, of what simulates little and of the long searches that say
what the best known plan is: what is in them is not done again.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np

from evaluation.commands.arguments import AUTO
from evaluation.records.journal import records
from evaluation.records.record import Failure, Record
from evaluation.studies.comparisons import CHEAP, check_policies, compared
from evaluation.studies.frame import Frame
from evaluation.studies.problems import ConditionOptions, Problems, measured_problem, suite_problems
from evaluation.studies.released.other_papers import OPS, doppler_problem, giph_problem
from graphs.formats.msr import is_workload
from graphs.foundation.engine import Workers
from graphs.problem import Problem
from graphs.runtime import IDEAL, runtime_of
from placers import default

GROUPS = 64
FEW = 16  # simulations of placers that choose or search
LONG = 5000  # simulations of the searches that say what the best known plan is
PROFILES, DOPPLER, GIPH = "profiles", "doppler", "giph"
OTHERS_SIMULATORS = (DOPPLER, GIPH)  # parts that are run as their papers simulate, whatever the runtime is
PARTS = ("heldout", "newfamilies", "clusters", PROFILES, *OTHERS_SIMULATORS)  # suites, but for the last three
IN_FILES = {PROFILES: "profiles", DOPPLER: "graphs of DOPPLER"}
NUMBER = 30  # problems of GiPH's kind

GREEDY, BEST, SEARCH, ANNEALING = "default:samples=1", "default", "annealing:policy=default", "annealing"
BESIDE_CHEAP = "default:cheap=yes"  # the best of as many, some of them plans of cheap placers
OTHER_GREEDY, OTHER_BEST = "the other policy, greedy", "the other policy"  # no placers' names
LONGER = {ANNEALING: "annealing, long", SEARCH: "annealing from the policy, long"}  # what to call them

# In a folder of profiles. The other workloads are layers with another objective: their transfers cost about a
# thousandth of those in the other files, so that nothing is left to decide for the step time.
WORKLOADS = ("msr/latency/*.json", "msr/throughput/operator_*.json")
LAYER_PROFILES = ("pipedream/*.txt", "dapple/*.txt")
CLUSTER = "p100:devices=4"  # for profiles, which bring no devices

# not placers' names: the fastest of CHEAP on each problem, and the fastest of all, long searches included
BEST_CHEAP, BEST_KNOWN = "the best cheap placer of each graph", "the best known plan of each graph"
ALL = (GREEDY, BEST, BESIDE_CHEAP, SEARCH, ANNEALING, OTHER_GREEDY, OTHER_BEST, *CHEAP, *LONGER.values())


def few(part: str) -> int:
    """What placers that choose or search may simulate; of GiPH's kind twice the number of ops, as its policy may."""
    return 2 * OPS if part == GIPH else FEW


def other_policies(part: str, runtime: str = IDEAL.name) -> dict[str, str]:
    """The specs of the released policy that `default` does not ask in this part, by what they are called here."""
    of_programs = part in OTHERS_SIMULATORS or (runtime != AUTO and runtime_of(runtime).is_ideal)
    folder, here = default.OF_PROGRAMS if of_programs else default.RELEASED, Path.cwd()
    spec = f"sequential:checkpoint={folder.relative_to(here) if folder.is_relative_to(here) else folder}"
    return {OTHER_GREEDY: f"{spec},samples=1", OTHER_BEST: spec}


def allowed(part: str, runtime: str = IDEAL.name) -> dict[str, int]:
    """The placers, and how much each may simulate."""
    choosing = (GREEDY, BEST, BESIDE_CHEAP, SEARCH, ANNEALING, *other_policies(part, runtime).values())
    return {**dict.fromkeys(choosing, few(part)), **dict.fromkeys(CHEAP, 1)}


def journals_of(part: str, out: Path, suffix: str = "", runtime: str = IDEAL.name) -> dict[Path, dict[str, int]]:
    """Where the records of a part are kept, and of which placers with how many simulations."""
    return {
        out / f"{part}-{few(part)}{suffix}.jsonl": allowed(part, runtime),
        out / f"{part}-{LONG}{suffix}.jsonl": dict.fromkeys(LONGER, LONG),
    }


def do_part(
    part: str, out: Path, problems: Problems, *, suffix: str = "", runtime: str = IDEAL.name, seeds: int = 1,
    workers: Workers = 1,
) -> list[Failure]:  # fmt: skip
    """Do what the journals of a part do not hold yet; failures are tried again each time, and returned.

    Raises InputError if the study's folder is of another policy than the one that is released now.
    """
    default.build()  # refused here if there is none
    check_policies(out, ["default"])
    return [
        failure
        for journal, placers in journals_of(part, out, suffix, runtime).items()
        for failure in compared(journal, placers, problems, about=part, seeds=seeds, workers=workers)
    ]


def records_of(part: str, out: Path, suffix: str = "", runtime: str = IDEAL.name) -> list[Record]:
    """What is done of a part. Raises InputError for a damaged journal."""
    kept = journals_of(part, out, suffix, runtime)
    return [record for journal, placers in kept.items() for record in records(journal, placers)]


def part_of(found: Iterable[Record]) -> Frame:
    """The frame of records by what their placers are called here, BEST_CHEAP and BEST_KNOWN.

    Of a problem that was not searched for long yet no best plan is known.
    """
    named = [(_called(record), record) for record in found]
    searched = {record.problem for called, record in named if called == LONGER[SEARCH]}
    known = [(f"{called}, known", record) for called, record in named if record.problem in searched]
    best_of: dict[Hashable, list[Hashable]] = {
        BEST_CHEAP: list(CHEAP), BEST_KNOWN: [f"{each}, known" for each in ALL],
    }  # fmt: skip
    return Frame.of([*named, *known], best_of=best_of)


def _called(record: Record) -> str:
    if record.placer.startswith("sequential:"):
        return OTHER_GREEDY if record.placer.endswith("samples=1") else OTHER_BEST
    return LONGER[record.placer] if record.budget == LONG else record.placer


def missing(found: Frame) -> dict[str, int]:
    """The placers without a plan for some problems of a part (not done yet, or failed), and how many."""
    count = {placer: int(np.isnan(found.means[placer]).sum()) for placer in ALL}
    return {placer: number for placer, number in count.items() if number}


def problems_of_part(part: str, data: Path | None, **timing: Unpack[ConditionOptions]) -> Problems:
    """Those of a suite, of GiPH's kind, or of files in a folder; none without these, which is said on stderr."""
    if part == GIPH:
        return {f"giph:number={i}@unlike": partial(giph_problem, i) for i in range(NUMBER)}
    if part not in IN_FILES:
        return suite_problems(part, groups=GROUPS, **timing)
    problems = {} if data is None else profile_problems(data, **timing) if part == PROFILES else doppler_problems(data)
    if not problems:
        what = f"{IN_FILES[part]} in {data}" if data else IN_FILES[part]
        print(f"there are no {what}: they are left out; --data names a folder of them", file=sys.stderr)
    return problems


def doppler_problems(data: Path) -> Problems:
    """Its graphs in a folder."""
    return {f"{path.stem}@doppler": partial(doppler_problem, path) for path in _files(data, ("doppler/*.txt",))}


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
