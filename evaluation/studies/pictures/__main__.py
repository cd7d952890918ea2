"""Draw the pictures of the README and of docs/, as SVG.

    python -m evaluation.studies.pictures    # or make pictures

`step.svg` compares an expert's plan with placelab's; `placement.svg` says what device placement is; the others
draw tables of studies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evaluation.studies.command import names_in, run
from evaluation.studies.pictures import placement, step
from evaluation.studies.pictures.answers import ANSWERS

PICTURES: dict[str, Callable[[], bytes]] = {
    "step": step.picture,
    "placement": placement.picture,
    **{name: answer.picture for name, answer in ANSWERS.items()},
}


def pictures(*, only: str = ",".join(PICTURES), out: Path = Path("docs/pictures")) -> Path:
    """Write the pictures into a folder.

    Args:
        only: which ones, with commas between them.
        out: the folder.

    """
    for name in names_in(only, "picture", PICTURES):
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.svg").write_bytes(PICTURES[name]())
    return out


if __name__ == "__main__":
    run(pictures, "pictures", __doc__)
