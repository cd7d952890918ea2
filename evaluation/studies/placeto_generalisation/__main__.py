"""Placeto's study of generalisation (Addanki et al. 2019, section 4), at a size that one core does in some minutes.

    python -m evaluation.studies.placeto_generalisation --families cifar10,ptb,nmt --seeds 3 --out runs/studies/placeto

Ctrl-C stops it, and the same command resumes. The folder then holds `placeto.md`, its plots, and all records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
import msgspec

from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.pieces import keep_size, load_pieces, load_size, pieces_done
from evaluation.studies.placeto_generalisation.document import FamilyFindings, save
from evaluation.studies.placeto_generalisation.methods import FamilyResult, PlacetoSize, pieces
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

DEFAULT = PlacetoSize()


def study(
    *,
    families: str = "cifar10,ptb,nmt",
    seeds: int = 3,
    out: Path = Path("runs/studies/placeto"),
    document: Path | None = None,
    write_only: WriteOnly = False,
    settings: Annotated[PlacetoSize, cyclopts.Parameter(name="*")] = DEFAULT,
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
        keep_size(out, settings)
        list(pieces_done(pieces(out, settings, chosen, seeds)))
    size, done = load_size(out, PlacetoSize), load_pieces(out, FamilyResult)
    asked = [result for result in done if result.family in chosen and result.seed < seeds]
    if not asked:
        raise InputError(f"{out}: nothing is done yet of {families}")
    found = FamilyFindings(size, sorted(asked, key=lambda result: chosen.index(result.family)))
    write_whole(out / "placeto_records.json", msgspec.json.encode({"settings": size, "pieces": found.results}))
    return save(found, document or out, command_of("placeto_generalisation", families=families, seeds=seeds))


if __name__ == "__main__":
    run(study, "placeto_generalisation", __doc__)
