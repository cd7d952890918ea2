"""Repairs against annealing from the same policy, at equal simulations and at equal seconds.

    python -m evaluation.studies.repairs --policy default --out runs/studies/repairs

Ctrl-C stops it, and the same command resumes. The folder then holds `repairs.md` and all measurements. Seconds are of
the whole search, its starts included, on all cores: let nothing else run.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.repairs import measure
from evaluation.studies.repairs.document import save
from evaluation.studies.repairs.measure import Searched
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

GRAPHS = "rnnlm:layers=4,steps=10,inception_v3,transformer:layers=6"


def study(
    *,
    policy: str = "default",
    graphs: str = GRAPHS,
    cluster: str = "p100:devices=4",
    groups: str = "64,256",
    moves: float = 0.5,
    budget: int = 1000,
    seeds: int = 2,
    out: Path = Path("runs/studies/repairs"),
    write_only: WriteOnly = False,
) -> Path:
    """Search all problems in all three ways.

    Args:
        policy: the policy that both searches begin with, `default` or a run folder.
        graphs: specs of graphs, with commas between them.
        cluster: the devices.
        groups: numbers of op groups, with commas between them.
        moves: the share of the simulations of `neural_lns` that annealing's moves take.
        budget: simulations of each search.
        seeds: how many searches of each problem.
        out: the folder that keeps what is done, and the document.
        write_only: write the document from what is done, and do nothing else.

    """
    counts = [int(count) for count in groups.split(",") if count.isdecimal()]
    if not counts or min(*counts, budget, seeds) < 1:
        raise InputError("a study needs at least one number of op groups, one simulation and one seed")
    if not write_only:
        out.mkdir(parents=True, exist_ok=True)
        pairs = [(graph, cluster) for graph in by_name.specs(graphs)]
        list(pieces_done(measure.jobs(out, pairs, counts, policy, moves, budget, seeds)))
    asked = (policy, moves, budget)
    done = [piece for piece in load_pieces(out, Searched) if (piece.policy, piece.moves, piece.budget) == asked]
    if not done:
        raise InputError(f"{out}: no problem is searched yet with this policy, share of moves and budget")
    command = command_of(
        "repairs", policy=policy, graphs=graphs, cluster=cluster, groups=groups, moves=moves, budget=budget, seeds=seeds
    )
    return save(done, out, command)


if __name__ == "__main__":
    run(study, "repairs", __doc__)
