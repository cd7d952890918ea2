"""Simulated studies: how their plans are run and what ops cost, as the flags of the verbs say it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evaluation.commands.arguments import AUTO
from evaluation.commands.problems import asked_runtime, check_cost_model
from evaluation.records.record import Record
from evaluation.studies.document import Plot, save_document
from evaluation.studies.problems import ConditionOptions
from evaluation.studies.study import Study
from graphs.transforms.mixed_precision import precision_named

KNOBS = ("runtime", "order", "host", "precision", "cost_model")
MACHINES = {  # what each kind of runtime is, for readers of a document
    "ideal": "the ideal machine, whose devices never wait for what issues their ops",
    "parallelize": "a training loop of PyTorch with `placelab.parallelize`, in which one process issues all ops",
}


@dataclass(frozen=True, kw_only=True)
class Simulated(Study):
    """A study of simulated steps.

    Journals, documents and plots of other knobs than those that the study has by default are files of their own.
    """

    runtime: str = AUTO
    """How plans are run, as `placelab place --runtime` takes it."""
    order: str = AUTO
    """The rule by which devices choose among the ops that are ready, if not the runtime's."""
    host: str = AUTO
    """What issues ops, if not the runtime's."""
    precision: str = AUTO
    """That of training; captured models alone have one."""
    cost_model: str = AUTO
    """What times ops; measured times of profiles count whatever it is."""

    def check(self) -> None:
        """Raise InputError for a knob that names nothing."""
        asked_runtime(self.runtime, self.order, self.host)
        check_cost_model(self.cost_model)
        precision_named(self.precision)

    @property
    def timing(self) -> ConditionOptions:
        """What `problem_of` takes."""
        return ConditionOptions(
            runtime=self.runtime, order=self.order, host=self.host, precision=self.precision, cost_model=self.cost_model
        )

    @property
    def suffix(self) -> str:
        """What the names of files end in: the knobs that are changed, as "_ideal_roofline"."""
        values = dict.fromkeys(str(value) for value in self.changed(*KNOBS).values())
        return "".join("_" + re.sub(r"[^A-Za-z0-9]+", "_", value) for value in values)

    def command(self, *names: str, **others: object) -> str:
        """As of every study, with the knobs that are changed."""
        return super().command(*names, **others, **self.changed(*KNOBS))

    def written(
        self, folder: Path, records: Iterable[Record], *, painted: Plot | None = None, **context: object
    ) -> Path:
        """Write the document under the study's name, and its plot, as `save_document`.

        The `records` say how plans are run; the template has that as `way`, and the plot as `plot`.
        """
        stem = f"{self.name}{self.suffix}"
        plot = f"{stem}.png" if painted else ""
        plots = {plot: painted} if painted else {}
        way = _way_of_running(records)
        return save_document(self.name, f"{stem}.md", folder, plots, way=way, plot=plot, **context)


def _way_of_running(records: Iterable[Record]) -> str:
    """A sentence: how the plans of records are run, what times their ops, and of how many problems if that differs."""
    problems: dict[str, set[str]] = {}
    for each in records:
        said = each.conditions
        knobs = {"runtime": said.runtime, "precision": said.precision, "cost-model": each.cost_model or said.cost_model}
        flags = " ".join(f"--{knob} {value}" for knob, value in knobs.items() if value)
        machine = MACHINES.get(said.runtime.partition(":")[0], "plans that are run in another way")
        problems.setdefault(f"{machine} (`{flags}`)", set()).add(each.problem)
    several = len(problems) > 1
    parts = [f"{machine}{f', for {len(some)} problems' if several else ''}" for machine, some in problems.items()]
    return f"Step times are those of {'; and of '.join(parts)}."
