"""Planners against one another: papers' planners and placelab's own, all judged by the engine, op by op.

    python -m evaluation.studies.planners --data FOLDER --out runs/studies/planners

FOLDER holds the profiles that PipeDream and DAPPLE published, in pipedream/ and dapple/; without it, only captured
models are planned. All cases are planned first; the longer searches follow. Ctrl-C stops it, and the same command
resumes. The folder then holds `planners.md`, a figure and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.planners import measure
from evaluation.studies.planners.cases import cases
from evaluation.studies.planners.document import PlannerFindings, save
from evaluation.studies.planners.measure import Longer, Measured
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError

PLANNED, LONG = "planned", "longer"  # folders


def study(
    *,
    data: Path | None = None,
    budget: int = 1000,
    workers: Workers = 1,
    out: Path = Path("runs/studies/planners"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Plan all cases with all planners.

    Args:
        data: the folder with the published profiles.
        budget: simulations of placelab's planner; a search ten times as long is compared with it.
        workers: processes that share the cases.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    if not write_only:
        some = cases(data)
        for folder in (PLANNED, LONG):
            (out / folder).mkdir(parents=True, exist_ok=True)
        list(pieces_done(measure.jobs(out / PLANNED, some, budget, measure.measured), workers))
        list(pieces_done(measure.jobs(out / LONG, some, budget, measure.searched), workers))
    done = [piece for piece in load_pieces(out / PLANNED, Measured) if piece.budget == budget]
    longer = [piece for piece in load_pieces(out / LONG, Longer) if piece.budget == budget]
    if not done:
        raise InputError(f"{out}: no case is planned yet with a budget of {budget}")
    options = {"data": "FOLDER"} if any(piece.source == "published profiles" for piece in done) else {}
    return save(PlannerFindings(done, longer), document or out, command_of("planners", **options, budget=budget))


if __name__ == "__main__":
    run(study, "planners", __doc__)
