"""A policy of whole plans against the planner, on kinds of chains held out and on captured models.

    python -m evaluation.studies.whole_plans --policies runs/whole_plans --out runs/studies/whole_plans

The folder of policies holds one run for each seed, seed0 and so on (`python -m training.whole_plans`). Ctrl-C stops it,
and the same command resumes. The folder then holds `whole_plans.md` and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.whole_plans.cases import SPLITS, cases
from evaluation.studies.whole_plans.document import WholePlansFindings, save
from evaluation.studies.whole_plans.measure import Measured, jobs
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    policies: Path = Path("runs/whole_plans"),
    seeds: int = 3,
    budget: int = 200,
    workers: Workers = 1,
    out: Path = Path("runs/studies/whole_plans"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Plan all cases.

    Args:
        policies: the folder with a run for each seed.
        seeds: how many.
        budget: simulations of the planner.
        workers: processes that share the cases.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    folders = [policies / f"seed{seed}" for seed in range(seeds)]
    if not write_only:
        if missing := [folder for folder in folders if not (folder / "meta.json").is_file()]:
            raise InputError(f"{missing[0]} holds no policy; train it with `python -m training.whole_plans`")
        out.mkdir(parents=True, exist_ok=True)
        list(pieces_done(jobs(out, cases(), budget, folders), workers))
    done = [
        piece for piece in load_pieces(out, Measured) if piece.budget == budget and len(piece.policies) == seeds
    ]  # fmt: skip
    if not done:
        raise InputError(f"{out}: no case is planned yet with a budget of {budget} and {seeds} seeds")
    done.sort(key=lambda piece: (SPLITS.index(piece.split), piece.model, piece.cluster))
    command = command_of("whole_plans", policies="runs/whole_plans", seeds=seeds, budget=budget)
    return save(WholePlansFindings(done), document or out, command)


if __name__ == "__main__":
    run(study, "whole_plans", __doc__)
