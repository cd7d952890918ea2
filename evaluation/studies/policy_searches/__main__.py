"""What a policy finds at every grain, and what a search finds that begins with it.

    python -m evaluation.studies.policy_searches --policy default --out runs/studies/policy_searches

Both are compared with annealing from cheap plans at the same grain, and all of it with a reference: annealing in 64
groups whose ops run first come, first served. Ctrl-C stops it, and the same command resumes.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import command_of, run
from evaluation.studies.pieces import keep_size, pieces_done
from evaluation.studies.policy_searches.document import Findings, save
from evaluation.studies.policy_searches.measure import all_jobs, frame_of, sizes
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    policy: str = "default",
    suites: str = "curves",
    searching: int = 20_000,
    seeds: int = 1,
    workers: Workers = 1,
    out: Path = Path("runs/studies/policy_searches"),
    document: Path | None = None,
) -> Path:
    """Place the problems of some suites by a policy, and search from it and from cheap plans, at every grain.

    Args:
        policy: a released policy by its name, or a run folder.
        suites: suites of problems, with commas between them.
        searching: simulations of the long searches, and of the reference.
        seeds: how often to place.
        workers: processes.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.

    """
    if min(searching, seeds) < 1:
        raise InputError("a study needs at least one simulation and one seed")
    chosen = sizes(policy, suites, searching, seeds)
    for who, size in chosen.items():
        keep_size(out / who, size)
    list(pieces_done(list(all_jobs(out, chosen)), workers))
    command = command_of("policy_searches", policy=policy, suites=suites, searching=searching, seeds=seeds)
    found = Findings(frame_of(out, chosen), searching)
    return save(found, document or out, policy=policy, suites=suites, command=command)


if __name__ == "__main__":
    run(study, "policy_searches", __doc__)
