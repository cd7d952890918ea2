"""The learned placers: GDP, HDP, ColocRL and Placeto on the problems of their papers, and all rivals.

    python -m evaluation.studies.learned --out runs/studies/learned --budget 1000 --seeds 3 --workers 2

Ops run first come, first served, as in the papers, unless another order is named. The document is written of all that
the folder holds of what is asked for. It needs the released policy (`placers/released`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from evaluation.records.journal import records
from evaluation.records.record import Failure
from evaluation.studies.comparisons import check_policy, compared
from evaluation.studies.learned.document import save
from evaluation.studies.learned.suite import SuiteFindings
from evaluation.studies.problems import suite_problems
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import report, run
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.runtime import FIFO, IDEAL

PLACERS = (
    "gdp+finetuned,hdp+finetuned,colocrl+finetuned,placeto+finetuned,default+finetuned,"
    "default:samples=1,default:samples=16,default,annealing:policy=default,annealing,hill_climbing,random,"
    "metis,heft,human_expert,single_device"
)


@dataclass(frozen=True, kw_only=True)
class Learned(Simulated):
    """Let placers, learned ones and others, place the problems of suites, and check the papers' claims."""

    name = "learned"
    suites: str = "gdp12,placeto"
    """Names, with commas between them."""
    placers: str = PLACERS
    """Their specs, with commas between them; `X+finetuned` learns on each problem before it answers."""
    budget: int = 1000
    """How many placements each placer may simulate on each problem."""
    seeds: int = 3
    """How many seeds to run each placer with."""
    groups: int = 64
    """Tie the ops into this many groups, each placed as one."""
    runtime: str = IDEAL.name
    """How plans are run, as `placelab place --runtime` takes it; the papers' machine is ideal."""
    order: str = FIFO.name
    """The rule by which devices choose among the ops that are ready; `auto` is the runtime's."""
    cost_model: str = "roofline"
    """What times ops."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        if not self._suites() or not self.allowed or self.seeds < 1:
            raise InputError("a study needs at least one suite, one placer and one seed")
        super().check()

    @property
    def allowed(self) -> dict[str, int]:
        """How much each placer may simulate."""
        return dict.fromkeys(by_name.specs(self.placers), self.budget)

    def do(self) -> None:
        """What is left of each suite; failures are kept next to its journal."""
        check_policy(self.folder)
        for suite in self._suites():
            journal, problems = self._journal(suite), suite_problems(suite, groups=self.groups, **self.timing)
            failures = compared(journal, self.allowed, problems, about=suite, seeds=self.seeds, workers=self.workers)
            others = [failure for failure in _failures(journal) if failure.placer not in self.allowed]
            write_whole(journal.with_suffix(".failures.json"), msgspec.json.encode([*others, *failures]))
            report(failures)

    def save(self, folder: Path) -> Path:
        """Write `learned.md` and its plot."""
        found = [findings for suite in self._suites() if (findings := self.load_suite(suite)).done]
        if not found:
            raise InputError(f"{self.folder}: nothing is done yet of {self.suites}")
        command = self.command("suites", "budget", "seeds", "groups", **self.changed("placers"))
        return save(found, folder, command, budget=self.budget, groups=self.groups, suffix=self.suffix)

    def load_suite(self, suite: str) -> SuiteFindings:
        """What is done of a suite. Raises InputError for a damaged journal."""
        journal, problems = self._journal(suite), tuple(suite_problems(suite))
        done = records(journal, self.allowed)
        return SuiteFindings(suite, problems, tuple(self.allowed), self.seeds, done, _failures(journal))

    def _suites(self) -> list[str]:
        return [name for name in self.suites.split(",") if name]

    def _journal(self, suite: str) -> Path:
        return self.folder / f"{suite}-{self.groups}{self.suffix}.jsonl"


def _failures(journal: Path) -> list[Failure]:
    """The failures when a journal was last resumed."""
    path = journal.with_suffix(".failures.json")
    return msgspec.json.decode(path.read_bytes(), type=list[Failure]) if path.is_file() else []


if __name__ == "__main__":
    run(Learned)
