"""Transfer: policies on kinds of problems that they were, and were not, trained on.

    python -m evaluation.studies.transfer --policies default,runs/mine --split validation --out runs/studies/transfer

Ctrl-C stops it, and the same command resumes. The folder then holds `validation.md` or `test.md`, and all results. Checkpoints and
settings are chosen by `--split validation`; `--split test` is for reporting.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.transfer.document import TransferFindings, save
from evaluation.studies.transfer.measure import POLICIES, RIVALS, SetFound, policy_jobs, rival_jobs
from evaluation.studies.transfer.sets import SEEDS, sets
from graphs.foundation import by_name
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError


def study(
    *,
    policies: str = "default",
    split: str = "test",
    kinds: str = "",
    count: int = 12,
    searching: int = 20_000,
    workers: Workers = 1,
    data: Path | None = None,
    out: Path = Path("runs/studies/transfer"),
    write_only: WriteOnly = False,
) -> Path:
    """Place all problems of all sets by rivals and policies.

    Args:
        policies: specs of learned placers, or run folders, with commas between them.
        split: `validation`, by which choices are made, or `test`.
        kinds: some of the sets, by their names with commas between them.
        count: how many random problems of each kind.
        searching: simulations of the search for the best known plans.
        workers: processes that share the sets.
        data: the folder with the profiles; without it, they are left out.
        out: the folder that keeps what is done, and the document.
        write_only: write the document from what is done, and do nothing else.

    """
    if split not in SEEDS:
        raise InputError(by_name.unknown("split", split, SEEDS))
    if min(count, searching) < 1:
        raise InputError("a study needs at least one problem of each kind, and one simulation of the search")
    known = sets(split, count, data)
    chosen = {name: known[name] for name in names_in(kinds, "set of problems", known) or known}
    named = by_name.specs(policies)
    if not write_only:
        jobs = rival_jobs(out, split, chosen, searching, count)
        jobs += [job for policy in named for job in policy_jobs(out, split, chosen, policy, count)]
        for folder in {job.path.parent for job in jobs}:
            folder.mkdir(parents=True, exist_ok=True)
        list(pieces_done(jobs, workers))
    done = [piece for folder in (RIVALS, POLICIES) for piece in load_pieces(out / folder, SetFound)]
    done = [piece for piece in done if piece.split == split and piece.set in chosen]
    rivals, found = [piece for piece in done if not piece.who], [piece for piece in done if piece.who in named]
    if not rivals or not found:
        raise InputError(f"{out}: no set of split {split!r} is done yet")
    rivals.sort(key=lambda piece: list(chosen).index(piece.set))
    command = command_of("transfer", policies=policies, split=split, count=count, searching=searching)
    findings = TransferFindings(rivals, found)
    return save(findings, out, command=command, split=split, searching=searching)


if __name__ == "__main__":
    run(study, "transfer", __doc__)
