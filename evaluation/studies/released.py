"""The study of the released policy: against cheap placers and search, on what it never saw, and with more simulations.

    python -m evaluation.studies.released --out runs/studies/released --parts heldout,newfamilies --workers 2

Ctrl-C stops it, and the same command goes on. The parts can be done by separate commands, one after another; the
document is written of all that the folder holds. It needs the released policy (`placers/released`).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.record import Failure
from evaluation.studies.journals import suite_problems
from evaluation.studies.pieces import names_in, run
from evaluation.studies.released_document import save_document
from evaluation.studies.released_parts import GROUPS, PARTS, PROFILES, do_part, profile_problems, records_of
from evaluation.studies.released_results import Part
from graphs.foundation.errors import InputError


def study(
    *,
    parts: str = ",".join(PARTS),
    seeds: int = 1,
    out: Path = Path("runs/studies/released"),
    data: Path = Path("../shared/data"),
    workers: int = 1,
    document: Path | None = None,
    write_only: Annotated[bool, cyclopts.Parameter(negative="")] = False,
) -> Path:
    """Place the problems of some parts of the study, and write down what follows from everything that is done.

    Args:
        parts: heldout, newfamilies, clusters, profiles, curves, with commas between them.
        seeds: how many seeds to run each placer with; the intervals are over problems.
        out: the folder that keeps what is done.
        data: the folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement".
        workers: how many processes to share the work among.
        document: a folder for the document and its plot; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    named = names_in(parts, "part of the study", PARTS)
    if not named or seeds < 1:
        raise InputError("a study needs at least one part and one seed")
    if not write_only:
        for name in named:
            for failure in _done(name, out, data, seeds, workers):
                print(f"{failure.placer} on {failure.problem}: {failure.reason}", file=sys.stderr)
    found = [Part(name, records) for name in PARTS if (records := records_of(name, out))]
    if not found:
        raise InputError(f"{out}: nothing is done yet of {parts}")
    command = ["python", "-m", "evaluation.studies.released", "--parts", ",".join(part.name for part in found)]
    command += ["--seeds", str(max(part.seeds for part in found))]
    return save_document({part.name: part for part in found}, document or out, shlex.join(command))


def _done(part: str, out: Path, data: Path, seeds: int, workers: int) -> list[Failure]:
    """Do a part, and return what failed of it."""
    problems = profile_problems(data) if part == PROFILES else suite_problems(part, GROUPS)
    if not problems:
        print(f"there are no profiles in {data}: that part is left out; --data names another folder", file=sys.stderr)
        return []
    return do_part(part, out, problems, seeds=seeds, workers=workers)


def main() -> None:
    """The command line."""
    run(study, "released", __doc__)


if __name__ == "__main__":
    main()
