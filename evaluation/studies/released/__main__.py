"""The released policy: against cheap placers and search, on what it never saw, and with more simulations.

    python -m evaluation.studies.released --out runs/studies/released --parts heldout,newfamilies --workers 2

The parts can be done by separate commands, one after another; the document is written of all that the folder holds. It
needs the released policy (`placers/released`), and for the part "profiles" a folder of them (`--data`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.released.document import save
from evaluation.studies.released.parts import PARTS, do_part, load_part, problems_of_part
from evaluation.studies.study import Study, names_in, report, run
from graphs.foundation.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Released(Study):
    """Place the problems of some parts of the study, and write down what follows from everything that is done."""

    name = "released"
    parts: str = ",".join(PARTS)
    """heldout, newfamilies, clusters, profiles, curves, with commas between them."""
    seeds: int = 1
    """How many seeds to run each placer with; the intervals are over problems."""
    data: Path | None = None
    """The folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement"; without it,
    the part "profiles" is left out."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        if not names_in(self.parts, "part of the study", PARTS) or self.seeds < 1:
            raise InputError("a study needs at least one part and one seed")

    def do(self) -> None:
        """The parts, one after another."""
        for name in names_in(self.parts, "part of the study", PARTS):
            problems = problems_of_part(name, self.data)
            report(do_part(name, self.folder, problems, seeds=self.seeds, workers=self.workers))

    def save(self, folder: Path) -> Path:
        """Write `released.md` of all parts."""
        found = {name: part for name in PARTS if (part := load_part(name, self.folder)).problems}
        if not found:
            raise InputError(f"{self.folder}: nothing is done yet of {self.parts}")
        seeds = max(part.num_seeds for part in found.values())
        return save(found, folder, self.command(parts=",".join(found), seeds=seeds))


if __name__ == "__main__":
    run(Released)
