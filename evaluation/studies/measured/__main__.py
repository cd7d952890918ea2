"""How near predictions are to published measurements of steps on real GPUs.

    python -m evaluation.studies.measured --data FOLDER --out runs/studies/measured

FOLDER has `steps.csv` and `collectives.csv`, numbers that others measured and published, each row with its source. Rows
are predicted with the public API where they can be said, in an order by hash of their group, until `--minutes` are up;
the same command resumes. Predictions are of the code as it was: after a change, name another folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evaluation.records.step_errors import FILE, written
from evaluation.studies.document import save_document
from evaluation.studies.measured.findings import (
    FEWEST_PLANS,
    Asked,
    Compared,
    VariantFindings,
    all_reduce_table,
    step_errors_of,
)
from evaluation.studies.measured.predictions import (
    SIZES,
    Prediction,
    Predictions,
    all_reduce,
    predicted,
    sizes,
    together,
)
from evaluation.studies.measured.questions import is_asked, why_not
from evaluation.studies.measured.rows import FITTED, AllReduce, Row, read
from evaluation.studies.measured.scatter import HEIGHT, paint
from evaluation.studies.measured.variants import VARIANTS, Variant
from evaluation.studies.study import Study, run
from graphs.foundation.engine import Killed
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.items import results
from graphs.foundation.progress import progress


@dataclass(frozen=True, kw_only=True)
class Measured(Study):
    """Predict every measured step that can be said to placelab, and compare."""

    name = "measured"
    data: Path | None = None
    """The folder of the measured rows; without it nothing is predicted or compared."""
    blocks: int = 6500
    """Rows that run more blocks of layers in a step, on all GPUs and of all micro-batches, are left out."""
    minutes: float = 20.0
    """Minutes after which no further rows are begun."""

    def do(self) -> None:
        """All rows that there is time for."""
        if self.data is None:
            return
        kept, started = self._kept, time.monotonic()
        clusters = self.folder / "clusters"
        clusters.mkdir(exist_ok=True)
        for variant in VARIANTS:
            missing = [each for each in self._all_reduces() if kept.of_all_reduce(each, variant) is None]
            kept.keep(all_reduce(each, variant, clusters) for each in missing)
        small = [row for row in self._askable() if row.blocks <= self.blocks]
        left = [some for some in together(small) if any(self._missing(kept, row) for row in some)]
        do = partial(predicted, variants=VARIANTS, folder=clusters)
        with closing(results(do, left, self.workers)) as done:
            for _, (_, found) in zip(progress(left, "groups of rows", unit="group"), done, strict=False):
                if not isinstance(found, Killed):
                    kept.keep(found)
                if time.monotonic() - started > 60 * self.minutes:
                    break

    def save(self, folder: Path) -> Path:
        """Write `measured.md` with its scatter and, for `evaluation/records`, `step_errors.toml`."""
        if self.data is None or not self._kept.file.exists():
            raise InputError(f"{self.folder}: no row is predicted yet; name the folder of measured rows, --data FOLDER")
        rows, kept = read(self.data / "steps.csv", Row), self._kept
        found = [VariantFindings(each, [one for one in self._done(each) if not one.said.refused]) for each in VARIANTS]
        reduced: dict[tuple[tuple[str, ...], ...], list[str]] = {}  # by table, the variants that have it
        for each in VARIANTS:
            reduced.setdefault(all_reduce_table(self._reduced(kept, each), SIZES), []).append(each.name)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE.name, written(step_errors_of(found)))
        judged = [each for each in found if not each.variant.by_another][-1]  # as plans are run, of all rows
        plots = {"measured.png": (partial(paint, found=judged), HEIGHT)}
        return save_document(
            "measured", "measured.md", folder, plots, command=self.command(data="FOLDER"), blocks=self.blocks,
            found=found, reduced=reduced, asked=Asked(rows, self._done(judged.variant)), fitted=FITTED,
            mebibytes=[f"{size / 2**20:.0f} MiB" for size in SIZES], fewest=FEWEST_PLANS,
        )  # fmt: skip

    @property
    def _kept(self) -> Predictions:
        return Predictions(self.folder / "predictions.jsonl")

    def _askable(self) -> list[Row]:
        assert self.data is not None
        asked = (row for row in read(self.data / "steps.csv", Row) if not why_not(row))
        return [row.of_memory if row.blocks > self.blocks and row.peak_bytes else row for row in asked]

    def _all_reduces(self) -> list[AllReduce]:
        assert self.data is not None
        return sizes(read(self.data / "collectives.csv", AllReduce))

    def _missing(self, kept: Predictions, row: Row) -> bool:
        return any(kept.of(row, variant) is None for variant in VARIANTS if is_asked(row, variant))

    def _done(self, variant: Variant) -> list[Compared]:
        """Rows that were predicted, or refused."""
        kept = self._kept
        both = ((row, kept.of(row, variant)) for row in self._askable())
        return [Compared(row, said) for row, said in both if said is not None]

    def _reduced(self, kept: Predictions, variant: Variant) -> Iterator[tuple[AllReduce, Prediction]]:
        for each in self._all_reduces():
            if (said := kept.of_all_reduce(each, variant)) is not None:
                yield each, said


if __name__ == "__main__":
    run(Measured)
