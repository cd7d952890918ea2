"""Splits against one another: placers that divide ops, on eight devices of one server, judged by the engine.

    python -m evaluation.studies.splits --out runs/studies/splits

Six models, and one that fits on no single device. Ctrl-C stops it, and the same command resumes. The folder then holds
`splits.md` and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.splits import cases, measure
from evaluation.studies.splits.document import SplitFindings, save
from evaluation.studies.splits.measure import Measured
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    cluster: str = cases.CLUSTER,
    budget: int = 60,
    workers: Workers = 1,
    out: Path = Path("runs/studies/splits"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Place all models with all placers.

    Args:
        cluster: the devices.
        budget: simulations of the search for splits.
        workers: processes that share the models.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    models = cases.MODELS | cases.LARGE
    if not write_only:
        out.mkdir(parents=True, exist_ok=True)
        list(pieces_done(measure.jobs(out, models, cluster, budget), workers))
    done = [piece for piece in load_pieces(out, Measured) if (piece.budget, piece.cluster) == (budget, cluster)]
    if not done:
        raise InputError(f"{out}: no model is placed yet on {cluster} with a budget of {budget}")
    done.sort(key=lambda piece: list(models).index(piece.model))
    return save(SplitFindings(done), document or out, command_of("splits", cluster=cluster, budget=budget))


if __name__ == "__main__":
    run(study, "splits", __doc__)
