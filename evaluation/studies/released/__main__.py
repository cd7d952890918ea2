"""The released policies: against cheap placers and search, on what it never saw.

    python -m evaluation.studies.released --out runs/studies/released --parts heldout,newfamilies --workers 2

The parts can be done by separate commands, one after another; the document is written of all that the folder holds. It
needs the released policies, and for the parts "profiles" and "doppler" a folder of files (`--data`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.released.document import save
from evaluation.studies.released.parts import PARTS, do_part, part_of, problems_of_part, records_of
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import names_in, report, run
from graphs.foundation.errors import InputError
from graphs.runtime import IDEAL


@dataclass(frozen=True, kw_only=True)
class Released(Simulated):
    """Place the problems of some parts of the study, and write down what follows from everything that is done."""

    name = "released"
    parts: str = ",".join(PARTS)
    """heldout, newfamilies, clusters, profiles, doppler, giph, with commas between them."""
    seeds: int = 1
    """How many seeds to run each placer with; the intervals are over problems."""
    data: Path | None = None
    """The folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement", and with the
    graphs of DOPPLER's repository in `doppler/`; what it lacks is left out."""

    runtime: str = IDEAL.name
    """How plans are run, as `placelab place --runtime` takes it; doppler and giph are run as their papers simulate."""
    cost_model: str = "roofline"
    """What times ops; measured times of profiles count whatever it is."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        super().check()
        if not names_in(self.parts, "part of the study", PARTS) or self.seeds < 1:
            raise InputError("a study needs at least one part and one seed")

    def do(self) -> None:
        """The parts, one after another."""
        for name in names_in(self.parts, "part of the study", PARTS):
            problems = problems_of_part(name, self.data, **self.timing)
            how = {"suffix": self.suffix, "runtime": self.runtime}
            report(do_part(name, self.folder, problems, **how, seeds=self.seeds, workers=self.workers))

    def save(self, folder: Path) -> Path:
        """Write `released.md` of all parts."""
        done = {name: records_of(name, self.folder, self.suffix, self.runtime) for name in PARTS}
        found = {name: part for name, some in done.items() if (part := part_of(some)).problems}
        if not found:
            raise InputError(f"{self.folder}: nothing is done yet of {self.parts}; leave out --write-only")
        records = (record for of_part in done.values() for record in of_part)
        return save(self, found, folder, records)


if __name__ == "__main__":
    run(Released)
