"""What decides how good a policy gets: variants of one small recipe, a change each, judged on graphs never seen.

    python -m evaluation.studies.decides --seeds 3 --out runs/studies/decides

Ctrl-C stops it, and the same command goes on. The folder then holds `decides.md`, its plot, and every run.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.studies.decides_document import save_document
from evaluation.studies.decides_pieces import RIVALS, do_all, load_all
from evaluation.studies.decides_results import Results
from evaluation.studies.decides_variants import BASE, VARIANTS, Settings
from evaluation.studies.pieces import names_in, run
from graphs.foundation.errors import InputError

DEFAULT = Settings()


def study(
    *,
    variants: str = "",
    seeds: int = 3,
    out: Path = Path("runs/studies/decides"),
    document: Path | None = None,
    write_only: Annotated[bool, cyclopts.Parameter(negative="")] = False,
    settings: Annotated[Settings, cyclopts.Parameter(name="*")] = DEFAULT,
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
        do_all(out, settings, chosen, seeds)
    kept, pieces = load_all(out)
    asked = [piece for piece in pieces if piece.variant in (RIVALS, *chosen) and piece.seed < seeds]
    results = Results(kept, asked)
    if BASE not in results.variants or not results.cheap_seconds:
        raise InputError(f"{out}: the base and the cheap placers, with which all is compared, are not done yet")
    command = ["python", "-m", "evaluation.studies.decides", "--seeds", str(seeds)]
    return save_document(results, document or out, shlex.join(command + ["--variants", variants] * bool(named)))


def main() -> None:
    """The command line."""
    run(study, "decides", __doc__)


if __name__ == "__main__":
    main()
