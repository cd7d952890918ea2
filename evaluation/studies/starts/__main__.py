"""Which cheap placers a search begins with: what each finds, what it takes, and in which order they are worth it.

    python -m evaluation.studies.starts --data shared/data --out runs/studies/starts

Ctrl-C stops it, and the same command resumes. The folder then holds `starts.md` and all measurements. Only processor
seconds are read, the least of several runs; what else the machine does matters little.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.pieces import load_pieces, pieces_done
from evaluation.studies.starts import measure, searches
from evaluation.studies.starts.document import StartsFindings, save
from evaluation.studies.starts.measure import KINDS, SUITE, Measured
from evaluation.studies.starts.searches import Searches
from graphs.foundation.errors import InputError

MEASURED, SEARCHED = "measured", "searched"  # folders


def study(
    *,
    kinds: str = ",".join(KINDS),
    repeats: int = 2,
    seeds: int = 3,
    out: Path = Path("runs/studies/starts"),
    data: Path | None = None,
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Measure the cheap placers, derive the order of the starts, and search from them.

    Args:
        kinds: kinds of problems to measure, with commas between them.
        repeats: how often to run each placer; the least seconds count.
        seeds: how many searches to make from each choice of starts.
        out: the folder that keeps what is done.
        data: the folder with the profiles of PipeDream, DAPPLE and "Efficient Algorithms for Device Placement"; without
            it, they are left out.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    named = names_in(kinds, "kind of problem", KINDS)
    if not named or min(repeats, seeds) < 1:
        raise InputError("a study needs at least one kind of problem, one run of each placer, and one seed")
    if not write_only:
        (out / SEARCHED).mkdir(parents=True, exist_ok=True)
        (out / MEASURED).mkdir(exist_ok=True)
        list(pieces_done(measure.jobs(out / MEASURED, named, data, repeats)))
        if SUITE in named:
            list(pieces_done(searches.jobs(out / SEARCHED, seeds)))
    done = [piece for piece in load_pieces(out / MEASURED, Measured) if piece.kind in named]
    if not done or all(piece.kind == SUITE for piece in done):
        raise InputError(f"{out}: no problem is measured yet that decides about the order")
    found = [search for piece in load_pieces(out / SEARCHED, Searches) for search in piece.found]
    return save(StartsFindings(done, found), document or out, command_of("starts", repeats=repeats, seeds=seeds))


if __name__ == "__main__":
    run(study, "starts", __doc__)
