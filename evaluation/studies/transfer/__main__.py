"""Transfer: policies on kinds of problems that they were, and were not, trained on.

    python -m evaluation.studies.transfer --policies default,runs/mine --split validation --out runs/studies/transfer

Ctrl-C stops it, and the same command resumes. The folder then holds all results, and `validation.md` or `test.md`, or
`unseen.md` of `--kinds unseen`. Choices are made by `--split validation`; `--split test` is for reporting.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.provenance import policy_folder
from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.pieces import load_done, pieces_done
from evaluation.studies.transfer.document import UNSEEN, TransferFindings, save
from evaluation.studies.transfer.measure import SetFound, policy_jobs, rival_jobs
from evaluation.studies.transfer.sets import SEEDS, ProblemsOf, sets
from graphs.foundation import by_name
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from training.recipe import load_recipe
from training.run_folder import CONFIG


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
        kinds: some of the sets, by their names with commas between them; `unseen` are, of each policy, the kinds of
            random graphs that its recipe holds out.
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
    unseen = kinds == UNSEEN
    chosen = known if unseen else {name: known[name] for name in names_in(kinds, "set of problems", known) or known}
    judged = {policy: held_out(policy, chosen) if unseen else chosen for policy in by_name.specs(policies)}
    against = {name: make for name, make in chosen.items() if any(name in own for own in judged.values())}
    jobs = rival_jobs(out, split, against, searching, count)
    jobs += [job for policy, own in judged.items() for job in policy_jobs(out, split, own, policy, count)]
    if not write_only:
        for folder in {job.path.parent for job in jobs}:
            folder.mkdir(parents=True, exist_ok=True)
        list(pieces_done(jobs, workers))
    done = load_done(jobs, SetFound)
    rivals, found = [piece for piece in done if not piece.who], [piece for piece in done if piece.who]
    if not rivals or not found:
        raise InputError(f"{out}: no set of split {split!r} is done yet")
    others = {"kinds": kinds} if kinds else {}
    command = command_of("transfer", policies=policies, split=split, count=count, searching=searching, **others)
    findings = TransferFindings(rivals, found)
    return save(findings, out, UNSEEN if unseen else split, command=command, split=split, searching=searching)


def held_out(policy: str, chosen: Mapping[str, ProblemsOf]) -> dict[str, ProblemsOf]:
    """Of some sets, those of the kinds that the recipe of a policy holds out. Raises InputError for one without."""
    folder = policy_folder(policy)
    kinds = load_recipe(str(folder / CONFIG)).problems.world.held_out if folder else ()
    if not kinds:
        raise InputError(f"the recipe of {policy!r} holds out no kinds of random graphs; none are unseen")
    return {name: make for name, make in chosen.items() if name in kinds}


if __name__ == "__main__":
    run(study, "transfer", __doc__)
