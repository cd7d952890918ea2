"""The document of the study of gains: of each plan what part of its gain each way of running it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from evaluation.studies.document import save_document
from evaluation.studies.gains.measure import Measured, Run
from evaluation.studies.gains.processes import ORDERS, InProcesses
from graphs.problem import DEFAULT_ORDER, PROGRAM

LEAST_GAIN = 0.02  # of a step on one device: parts of less say nothing
WAYS = ("first_come", "program", "issued", "deferred")  # besides that of the plan


@dataclass(frozen=True)
class GainFindings:
    """What is measured of a study."""

    models: Sequence[Measured]
    in_processes: Sequence[InProcesses] = ()

    def gain(self, model: Measured, run: Run) -> float:
        """By which share of a step on one device the plan's is shorter."""
        return 1 - run.planned / model.alone

    def gaining(self, model: Measured) -> list[Run]:
        """The plans that gain something, which were found under the order that they are then run in."""
        return [run for run in model.runs if run.order == DEFAULT_ORDER and self.gain(model, run) >= LEAST_GAIN]

    def kept(self, model: Measured, run: Run, way: str) -> float:
        """What part of the plan's gain is left; less than 0 if a step is slower than on one device."""
        seconds: float = getattr(run, way)
        return (model.alone - seconds) / (model.alone - run.planned)

    def median(self, way: str) -> float:
        """That of all plans that gain."""
        return median(self.kept(model, run, way) for model in self.models for run in self.gaining(model))

    def of_program(self, model: Measured) -> list[tuple[Run, Run]]:
        """A placer's plan, and that which it found under PyTorch's order."""
        usual = {run.placer: run for run in model.runs if run.order == DEFAULT_ORDER}
        return [(usual[run.placer], run) for run in model.runs if run.order == PROGRAM]


def save(found: GainFindings, folder: Path, command: str) -> Path:
    """Write `gains.md` into a folder."""
    count = sum(len(found.gaining(model)) for model in found.models)
    return save_document(
        "gains", "gains.md", folder, {}, command=command, found=found, count=count, least=LEAST_GAIN, ways=WAYS,
        orders=ORDERS, cluster=found.models[0].cluster, budget=found.models[0].budget,
    )  # fmt: skip
