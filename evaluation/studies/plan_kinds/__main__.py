"""When which kind of plan wins: op placement, data parallelism, pipelines and their mixtures, over numbers of devices.

    python -m evaluation.studies.plan_kinds --out runs/studies/plan_kinds

Ctrl-C stops it, and the same command resumes. The folder then holds `plan_kinds.md`, a figure and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.plan_kinds import measure
from evaluation.studies.plan_kinds.document import KindFindings, save
from evaluation.studies.plan_kinds.measure import Measured
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    budget: int = 2000,
    workers: Workers = 1,
    out: Path = Path("runs/studies/plan_kinds"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Measure all kinds of plans.

    Args:
        budget: simulations of the search for an op placement.
        workers: processes that share the problems.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    if not write_only:
        out.mkdir(parents=True, exist_ok=True)
        list(pieces_done(measure.jobs(out, budget), workers))
    done = [piece for piece in load_pieces(out, Measured) if piece.budget == budget]
    if not done:
        raise InputError(f"{out}: no problem is measured yet with a budget of {budget}")
    return save(KindFindings(done), document or out, command_of("plan_kinds", budget=budget))


if __name__ == "__main__":
    run(study, "plan_kinds", __doc__)
