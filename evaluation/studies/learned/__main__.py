"""The study of the learned placers: GDP, HDP, ColocRL and Placeto on the problems of their papers, and all rivals.

    python -m evaluation.studies.learned --out runs/studies/learned --budget 1000 --seeds 3 --workers 2

Ops run first come, first served, as in the papers, unless another order is named. Ctrl-C stops it, and the same command
resumes. The document is written of all that the folder holds of what is asked for. It needs the released policy
(`placers/released`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cyclopts
import msgspec

from evaluation.journal import records
from evaluation.record import Failure
from evaluation.studies.command import WriteOnly, command_of, report, run
from evaluation.studies.comparisons import check_policy, compared
from evaluation.studies.learned.document import save
from evaluation.studies.learned.suite import SuiteFindings
from evaluation.studies.problems import suite_problems
from graphs.foundation import by_name
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.problem import FIFO, order_spec

SUITES = "gdp12,placeto"
PLACERS = (
    "gdp+finetuned,hdp+finetuned,colocrl+finetuned,placeto+finetuned,default+finetuned,"
    "default:samples=1,default:samples=16,default,annealing:policy=default,annealing,hill_climbing,random,"
    "metis,heft,human_expert,single_device"
)


@cyclopts.Parameter(name="*")
@dataclass(frozen=True)
class Setting:
    """How the problems are made."""

    groups: int = 64
    """Tie the ops into this many groups, each placed as one."""
    order: str = FIFO
    """The rule by which devices choose among the ops that are ready."""


def study(
    *,
    suites: str = SUITES,
    placers: str = PLACERS,
    budget: int = 1000,
    seeds: int = 3,
    setting: Setting = Setting(),
    out: Path = Path("runs/studies/learned"),
    workers: Workers = 1,
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Let placers, learned ones and others, place the problems of suites, and check the papers' claims.

    Args:
        suites: names, with commas between them.
        placers: their specs, with commas between them; `X+finetuned` learns on each problem before it answers.
        budget: how many placements each placer may simulate on each problem.
        seeds: how many seeds to run each placer with.
        setting: how the problems are made.
        out: the folder that keeps what is done.
        workers: how many processes to share the work among.
        document: a folder for the document and its plot; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    chosen, allowed = [name for name in suites.split(",") if name], dict.fromkeys(by_name.specs(placers), budget)
    if not chosen or not allowed or seeds < 1:
        raise InputError("a study needs at least one suite, one placer and one seed")
    groups, rule = setting.groups, order_spec(setting.order)
    if not write_only:
        check_policy(out)
        for suite in chosen:
            report(_do(suite, out, allowed, groups=groups, order=rule, seeds=seeds, workers=workers))
    every = [load_suite(suite, out, allowed, groups=groups, order=rule, seeds=seeds) for suite in chosen]
    found = [suite for suite in every if suite.done]
    if not found:
        raise InputError(f"{out}: nothing is done yet of {suites}")
    others = {} if placers == PLACERS else {"placers": placers}
    others |= {} if rule == FIFO else {"order": rule}
    command = command_of("learned", suites=suites, budget=budget, seeds=seeds, groups=groups, **others)
    return save(found, document or out, command, budget=budget, groups=groups, order=rule)


def load_suite(
    suite: str, out: Path, allowed: Mapping[str, int], *, groups: int, seeds: int, order: str = FIFO
) -> SuiteFindings:
    """What is done of a suite by placers with these budgets. Raises InputError for a damaged journal."""
    journal = _journal(suite, out, groups, order)
    problems = tuple(suite_problems(suite, groups, order))
    return SuiteFindings(suite, problems, tuple(allowed), seeds, records(journal, allowed), _failures(journal))


def _do(
    suite: str, out: Path, allowed: Mapping[str, int], *, groups: int, order: str, seeds: int, workers: Workers
) -> list[Failure]:
    """Do what is left of a suite; failures are kept next to the journal, and returned."""
    journal = _journal(suite, out, groups, order)
    problems = suite_problems(suite, groups, order)
    failures = compared(journal, allowed, problems, about=suite, seeds=seeds, workers=workers)
    others = [failure for failure in _failures(journal) if failure.placer not in allowed]
    write_whole(journal.with_suffix(".failures.json"), msgspec.json.encode([*others, *failures]))
    return failures


def _journal(suite: str, out: Path, groups: int, order: str) -> Path:
    return out / (f"{suite}-{groups}.jsonl" if order == FIFO else f"{suite}-{groups}-{order.replace(':', '-')}.jsonl")


def _failures(journal: Path) -> list[Failure]:
    """The failures when a journal was last resumed."""
    path = journal.with_suffix(".failures.json")
    return msgspec.json.decode(path.read_bytes(), type=list[Failure]) if path.is_file() else []


if __name__ == "__main__":
    run(study, "learned", __doc__)
