"""The document of the study of repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.statistics import geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.repairs.measure import Searched


@dataclass(frozen=True)
class Row:
    """The searches of one problem, over all seeds: ratios of step times are geometric means."""

    problem: str
    units: int
    over_same_simulations: float
    over_same_seconds: float
    took: float  # seconds of a search by repairs
    annealing_took: float  # seconds, with as many simulations
    annealing_simulations: float  # in as many seconds

    @classmethod
    def of(cls, problem: str, some: Sequence[Searched]) -> Row:
        """Of searches of a problem, or of several."""
        return cls(
            problem,
            some[0].units,
            float(geometric_mean(np.array([each.repaired / each.same_simulations for each in some]))),
            float(geometric_mean(np.array([each.repaired / each.same_seconds for each in some]))),
            float(np.mean([each.repaired_took for each in some])),
            float(np.mean([each.same_simulations_took for each in some])),
            float(np.mean([each.same_seconds_simulations for each in some])),
        )


def save(found: Sequence[Searched], folder: Path, command: str) -> Path:
    """Write `repairs.md` into a folder."""
    problems = list(dict.fromkeys(each.problem for each in found))
    rows = [Row.of(name, [each for each in found if each.problem == name]) for name in problems]
    return save_document(
        "repairs", "repairs.md", folder, {}, command=command, rows=rows, everything=Row.of("all", found),
        first=found[0], seeds=len({each.seed for each in found}),
    )  # fmt: skip
