"""The study of the released policy: against cheap placers and search, on what it never saw, and with more simulations.

    python -m evaluation.studies.released --out runs/studies/released --parts heldout,newfamilies --workers 2

Ctrl-C stops it, and the same command resumes. The parts can be done by separate commands, one after another; the
document is written of all that the folder holds. It needs the released policy (`placers/released`), and for the part
"profiles" a folder of them (`--data`).
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, names_in, report, run
from evaluation.studies.released.document import save
from evaluation.studies.released.parts import PARTS, do_part, load_part, problems_of_part
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    parts: str = ",".join(PARTS),
    seeds: int = 1,
    out: Path = Path("runs/studies/released"),
    data: Path | None = None,
    workers: Workers = 1,
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Place the problems of some parts of the study, and write down what follows from everything that is done.

    Args:
        parts: heldout, newfamilies, clusters, profiles, curves, with commas between them.
        seeds: how many seeds to run each placer with; the intervals are over problems.
        out: the folder that keeps what is done.
        data: the folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement"; without
            it, the part "profiles" is left out.
        workers: how many processes to share the work among.
        document: a folder for the document and its plot; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    named = names_in(parts, "part of the study", PARTS)
    if not named or seeds < 1:
        raise InputError("a study needs at least one part and one seed")
    if not write_only:
        for name in named:
            report(do_part(name, out, problems_of_part(name, data), seeds=seeds, workers=workers))
    found = {name: part for name in PARTS if (part := load_part(name, out)).problems}
    if not found:
        raise InputError(f"{out}: nothing is done yet of {parts}")
    command = command_of("released", parts=",".join(found), seeds=max(part.num_seeds for part in found.values()))
    return save(found, document or out, command)


if __name__ == "__main__":
    run(study, "released", __doc__)
