"""What more processes and machines gain in training: parts of an update, measured, and speed-ups on up to 1,000.

    python -m evaluation.studies.scaling --out runs/studies/scaling

Nothing else should run meanwhile: whole updates are timed by the wall clock, on two cores. Ctrl-C stops it, and the
same command resumes. The folder then holds `scaling.md`, a figure and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import keep_size, load_pieces, pieces_done
from evaluation.studies.scaling.document import save
from evaluation.studies.scaling.measure import Measured, Size, jobs
from graphs.foundation.errors import InputError
from graphs.foundation.machine import processor_name


def study(
    *,
    updates: int = 40,
    small: WriteOnly = False,
    out: Path = Path("runs/studies/scaling"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Measure updates, and simulate them on more workers and ranks.

    Args:
        updates: updates that are measured, of each phase, each way.
        small: tiny problems and searches, for a try.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    if updates < 1:
        raise InputError(f"--updates is {updates}; expected at least 1")
    size = Size(updates, small)
    if not write_only:
        keep_size(out, size)
        list(pieces_done(jobs(out, size)))
    return save(load_pieces(out, Measured), document or out, command_of("scaling", updates=updates), processor_name())


if __name__ == "__main__":
    run(study, "scaling", __doc__)
