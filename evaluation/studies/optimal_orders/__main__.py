"""What fixed rules lose over plans whose order is free: optima of small graphs under each rule, and with any order.

    python -m evaluation.studies.optimal_orders --out runs/studies/optimal_orders

Ctrl-C stops it, and the same command resumes. The folder then holds `optimal_orders.md` and all proofs.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.optimal_orders import proofs
from evaluation.studies.optimal_orders.document import OrderFindings, save
from evaluation.studies.optimal_orders.proofs import Proof
from evaluation.studies.pieces import load_pieces, pieces_done
from graphs.foundation.errors import InputError


def study(
    *,
    groups: int = 10,
    work: float = 2.0,
    out: Path = Path("runs/studies/optimal_orders"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Find and prove the optima.

    Args:
        groups: op groups of each graph; of all their placements on two devices each is simulated.
        work: how long CP-SAT may search the orders of a problem, in its own deterministic seconds.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    if not write_only:
        out.mkdir(parents=True, exist_ok=True)
        list(pieces_done(proofs.jobs(out, groups, work)))
    done = [piece for piece in load_pieces(out, Proof) if piece.groups <= groups]
    if not done:
        raise InputError(f"{out}: no problem is solved yet")
    return save(OrderFindings(done), document or out, command_of("optimal_orders", groups=groups, work=work))


if __name__ == "__main__":
    run(study, "optimal_orders", __doc__)
