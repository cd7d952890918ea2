"""Placeto's study of generalisation (Addanki et al. 2019, section 4), at a size that one core does in some minutes.

    python -m evaluation.studies.placeto_generalisation --families cifar10,ptb,nmt --seeds 3 --out runs/studies/placeto

The folder then holds `placeto.md`, its plots, and all records.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import cyclopts
import msgspec

from evaluation.studies.pieces import do_pieces, keep_size, load_pieces, load_size
from evaluation.studies.placeto_generalisation.document import FamilyFindings, save
from evaluation.studies.placeto_generalisation.methods import FamilyResult, PlacetoSize, pieces
from evaluation.studies.study import Study, names_in, run
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

DEFAULT = PlacetoSize()


@dataclass(frozen=True, kw_only=True)
class Generalisation(Study):
    """Train Placeto and ColocRL's RNN on families, and compare them on graphs that they never saw."""

    name = "placeto_generalisation"
    families: str = "cifar10,ptb,nmt"
    """Model families, with commas between them."""
    seeds: int = 3
    """How many times to train everything."""
    settings: Annotated[PlacetoSize, cyclopts.Parameter(name="*")] = DEFAULT
    """The size of the study."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        if not self._chosen() or self.seeds < 1:
            raise InputError("a study needs at least one family and one seed")

    def do(self) -> None:
        """All families, one after another."""
        keep_size(self.folder, self.settings)
        do_pieces(pieces(self.folder, self.settings, self._chosen(), self.seeds))

    def save(self, folder: Path) -> Path:
        """Write `placeto.md`, its plots, and a file with all records."""
        chosen, size = self._chosen(), load_size(self.folder, PlacetoSize)
        done = load_pieces(self.folder, FamilyResult)
        asked = [result for result in done if result.family in chosen and result.seed < self.seeds]
        if not asked:
            raise InputError(f"{self.folder}: nothing is done yet of {self.families}")
        found = FamilyFindings(size, sorted(asked, key=lambda result: chosen.index(result.family)))
        kept = msgspec.json.encode({"settings": size, "pieces": found.results})
        write_whole(self.folder / "placeto_records.json", kept)
        return save(found, folder, self.command("families", "seeds"))

    def _chosen(self) -> list[str]:
        return names_in(self.families, "model family", by_name.names("graphs.families"))


if __name__ == "__main__":
    run(Generalisation)
