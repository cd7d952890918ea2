"""What part of a plan's gain each way of running it keeps: simulated, on two devices.

    python -m evaluation.studies.gains --out runs/studies/gains

Ctrl-C stops it, and the same command resumes. The folder then holds `gains.md` and all results.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.gains import cases, measure
from evaluation.studies.gains import processes as in_processes
from evaluation.studies.gains.document import GainFindings, save
from evaluation.studies.gains.measure import Measured
from evaluation.studies.gains.processes import InProcesses
from evaluation.studies.pieces import load_pieces, pieces_done
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    cluster: str = cases.CLUSTER,
    budget: int = 1000,
    workers: Workers = 1,
    processes: str = "",
    rounds: int = 5,
    out: Path = Path("runs/studies/gains"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Place all models, and simulate each plan in all orders.

    Args:
        cluster: the devices.
        budget: simulations of a search for a plan.
        workers: processes that share the models.
        processes: a cluster file of this machine's CPUs, on which orders are run as well; nothing else should run then.
        rounds: how often they are.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    apart = out / in_processes.FOLDER
    if not write_only:
        out.mkdir(parents=True, exist_ok=True)
        list(pieces_done(measure.jobs(out, cases.MODELS, cases.PLANS, cluster, budget), workers))
        if processes:
            apart.mkdir(exist_ok=True)
            list(pieces_done(in_processes.jobs(apart, cases.IN_PROCESSES, processes, budget, rounds)))
    done = [piece for piece in load_pieces(out, Measured) if (piece.budget, piece.cluster) == (budget, cluster)]
    if not done:
        raise InputError(f"{out}: no model is placed yet on {cluster} with a budget of {budget}")
    done.sort(key=lambda piece: list(cases.MODELS).index(piece.model))
    command = command_of("gains", cluster=cluster, budget=budget)
    return save(GainFindings(done, load_pieces(apart, InProcesses)), document or out, command)


if __name__ == "__main__":
    run(study, "gains", __doc__)
