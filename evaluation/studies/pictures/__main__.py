"""Draw the pictures of the README and of docs/.

    python -m evaluation.studies.pictures    # or make pictures

`step.svg` compares an expert's plan with placelab's; `placement.svg` says what device placement is; `explorer.png` is
the page of `placelab open`, which Chromium shows; the others draw tables of studies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.pictures import explorer, placement, step
from evaluation.studies.pictures.answers import ANSWERS
from evaluation.studies.study import Study, names_in, run

PICTURES: dict[str, Callable[[], bytes]] = {
    "step.svg": step.picture,
    "placement.svg": placement.picture,
    "explorer.png": explorer.picture,
    **{f"{name}.svg": answer.picture for name, answer in ANSWERS.items()},
}


@dataclass(frozen=True, kw_only=True)
class Pictures(Study):
    """Draw the pictures of the README and of docs/."""

    name = "pictures"
    out: Path | None = Path("docs/pictures")
    """The folder that they are written into."""
    only: str = ",".join(PICTURES)
    """Which ones, with commas between them."""

    def check(self) -> None:
        """Raise InputError for a picture that there is not."""
        names_in(self.only, "picture", PICTURES)

    def do(self) -> None:
        """Draw them."""
        for name in names_in(self.only, "picture", PICTURES):
            (self.folder / name).write_bytes(PICTURES[name]())

    def save(self, folder: Path) -> Path:
        """No document is written."""
        return folder


if __name__ == "__main__":
    run(Pictures)
