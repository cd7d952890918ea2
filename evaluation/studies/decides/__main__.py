"""What decides how good a policy gets: variants of one small recipe, a change each, judged on graphs never seen.

    python -m evaluation.studies.decides --seeds 3 --out runs/studies/decides

Ctrl-C stops it, and the same command resumes. The folder then holds `decides.md`, its plot, and every run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import cyclopts
import numpy as np

from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.decides.document import VariantFindings, save
from evaluation.studies.decides.runs import CHEAP, VariantResult, pieces
from evaluation.studies.decides.variants import BASE, VARIANTS, DecidesSize
from evaluation.studies.pieces import keep_size, load_pieces, load_size, pieces_done
from graphs.foundation.errors import InputError

DEFAULT = DecidesSize()


def study(
    *,
    variants: str = "",
    seeds: int = 3,
    out: Path = Path("runs/studies/decides"),
    document: Path | None = None,
    write_only: WriteOnly = False,
    settings: Annotated[DecidesSize, cyclopts.Parameter(name="*")] = DEFAULT,
) -> Path:
    """Train variants of a recipe, and compare them with it on graphs that none of them saw.

    Args:
        variants: names, with commas between them; the base is always among them. Without any, all.
        seeds: how many times to train each; all variants have one before any has two.
        out: the folder that keeps what is done.
        document: a folder for the document and its plot; without it, `out`.
        write_only: write the document from what is done, and do nothing else.
        settings: the size of the study.

    """
    named = names_in(variants, "variant", VARIANTS)
    if seeds < 1:
        raise InputError(f"a study needs at least one seed, not {seeds}")
    chosen = [name for name in VARIANTS if name == BASE or name in (named or VARIANTS)]
    if not write_only:
        keep_size(out, settings)
        list(pieces_done(pieces(out, settings, chosen, seeds)))
    size, done = load_size(out, DecidesSize), load_pieces(out, VariantResult)
    found = VariantFindings(size, [one for one in done if one.variant in (CHEAP, *chosen) and one.seed < seeds])
    if BASE not in found.variants or not np.isfinite(found.cheap_seconds).any():
        raise InputError(f"{out}: the base and the cheap placers, with which all is compared, are not done yet")
    command = command_of("decides", seeds=seeds, **({"variants": variants} if named else {}))
    return save(found, document or out, command)


if __name__ == "__main__":
    run(study, "decides", __doc__)
