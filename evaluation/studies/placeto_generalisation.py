"""Placeto's study of generalisation (Addanki et al. 2019, section 4), at a size that one core does in some minutes.

    python -m evaluation.studies.placeto_generalisation --families cifar10,ptb,nmt --seeds 3 --out runs/studies/placeto

Ctrl-C stops it, and the same command goes on. The folder then holds `placeto.md`, its plots, and all records.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.studies.pieces import names_in, run
from evaluation.studies.placeto_document import Results, save_document, save_records
from evaluation.studies.placeto_pieces import Settings, do_all, load_all
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

DEFAULT = Settings()


def study(
    *,
    families: str = "cifar10,ptb,nmt",
    seeds: int = 3,
    out: Path = Path("runs/studies/placeto"),
    document: Path | None = None,
    write_only: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    settings: Annotated[Settings, cyclopts.Parameter(name="*")] = DEFAULT,
) -> Path:
    """Train Placeto and ColocRL's RNN on families, and compare them on graphs that they never saw.

    Args:
        families: model families, with commas between them.
        seeds: how many times to train everything.
        out: the folder that keeps what is done.
        document: a folder for the document and its plots; without it, `out`.
        write_only: write the document from what is done, and do nothing else.
        settings: the size of the study.

    """
    chosen = names_in(families, "model family", by_name.names("graphs.families"))
    if not chosen or seeds < 1:
        raise InputError("a study needs at least one family and one seed")
    if not write_only:
        do_all(out, settings, chosen, seeds)
    kept, pieces = load_all(out)
    asked = [piece for piece in pieces if piece.family in chosen and piece.seed < seeds]
    ordered = sorted(asked, key=lambda piece: chosen.index(piece.family))
    if not ordered:
        raise InputError(f"{out}: nothing is done yet of {families}")
    command = ["python", "-m", "evaluation.studies.placeto_generalisation", "--families", families, "--seeds"]
    results = Results(kept, ordered)
    save_records(results, out / "placeto_records.json")
    return save_document(results, document or out, shlex.join([*command, str(seeds)]))


def main() -> None:
    """The command line."""
    run(study, "placeto_generalisation", __doc__)


if __name__ == "__main__":
    main()
