"""Regimes: trained policies against search and cheap placers, at equal processor seconds, by size, devices, transfers.

    python -m evaluation.studies.regimes --policy default --rows units90,units200
    python -m evaluation.studies.regimes --policy runs/a --policy runs/b --policy runs/c --runtime ideal

On random problems of the kinds that training holds out, and on captured models. Policies of several trainings count as
seeds of one. Seconds are measured: nothing else should run meanwhile. How much there is to gain is said by long
searches (`--long`), which take most of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.comparisons import check_policies
from evaluation.studies.regimes.equal_seconds import FEW, ComparedPlacers, do_row
from evaluation.studies.regimes.findings import BEST_CHEAP, FORMS, LONGER, behind, found_of
from evaluation.studies.regimes.rows import GROUPS, KINDS, ROWS, row_problems
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import names_in, report, run
from graphs.foundation.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Regimes(Simulated):
    """Place the problems of some rows with policies and their rivals, all with the seconds that annealing takes."""

    name = "regimes"
    policy: tuple[str, ...] = ("default",)
    """`default`, or the folder of a run or a checkpoint; several are seeds of one policy."""
    rows: str = ",".join(ROWS)
    """The rows, with commas between them; units10000 takes longest."""
    problems: int = 12
    """Random problems of a row."""
    long: float = 10.0
    """Processor seconds of each long search, up to 6 times as many in rows of over 1,000 units; 0: none."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        super().check()
        if not names_in(self.rows, "row of the study", ROWS) or self.problems < 1 or not self.policy:
            raise InputError("a study needs at least one policy, one row and one problem")
        if not 0 <= self.long < math.inf:
            raise InputError(f"--long is {self.long:g}; expected seconds >= 0, 0 for no long searches")
        if len(set(self.policy)) < len(self.policy):
            raise InputError(f"a policy is given twice: {', '.join(self.policy)}; name each once")
        if self.workers != 1:
            raise InputError("seconds are compared, which processes beside each other would change; use --workers 1")

    def do(self) -> None:
        """The rows, one after another."""
        field = ComparedPlacers.of(self.policy)
        check_policies(self.folder, self.policy)
        for name in names_in(self.rows, "row of the study", ROWS):
            problems = row_problems(name, self.problems, **self.timing)
            report(do_row(name, problems, ROWS[name].limits(self.long), field, self.folder, self.suffix))

    def save(self, folder: Path) -> Path:
        """Write `regimes.md` of all rows that are done."""
        field = ComparedPlacers.of(self.policy)
        found, every = {}, []
        for name in ROWS:
            findings, some = found_of(name, field, self.folder, self.suffix)
            every += some
            if findings:
                found[name] = findings
        if not found:
            raise InputError(f"{self.folder}: nothing is done yet of {self.rows}; leave out --write-only")
        limits = list(dict.fromkeys(at.limit for each in found.values() for at in each.limits))
        command = self.command(rows=",".join(found), problems=self.problems, **self.changed("long"))
        return self.written(
            folder, every, command=" ".join([command, *(f"--policy {spec}" for spec in self.policy)]),
            found=found, behind=behind(found.values()), limits=limits, forms=FORMS, best_cheap=BEST_CHEAP,
            longer=LONGER, few=FEW, groups=GROUPS, kinds=KINDS, policies=len(self.policy),
        )  # fmt: skip


if __name__ == "__main__":
    run(Regimes)
