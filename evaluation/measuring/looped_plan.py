"""LoopedPlan: a plan that was run in one process, next to its simulation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from envs.running.process_memory import Growth
from evaluation.measuring.measured_plan import PlanRun, growth_record, steps_record
from evaluation.measuring.measured_table import differences_table, grown, measured_sentences, memory_heads
from evaluation.records.formatting import memory, numbers, table


@dataclass(frozen=True, eq=False)
class LoopedPlan(PlanRun):
    """A plan that was run in one process, as a user's loop does."""

    def to_json(self) -> dict[str, Any]:
        """In numbers; what is unknown is null."""
        return {
            "problem": self.planned.problem.name,
            "placer": self.planned.result.placer,
            "training": asdict(self.training),
            "devices": [
                {"device": name, "on": on, "predicted_growth_bytes": predicted, **growth_record(growth)}
                for name, on, predicted, growth in self._memory()
            ],
            **steps_record(self.run),
        }

    def _memory(self) -> list[tuple[str, str, float, Growth]]:
        """Of each device its name, on what it ran, and the bytes beyond its weights, predicted and measured."""
        step = self.run.predicted
        names = [device.name for device in step.problem.cluster.devices]
        predicted = (step.peak_bytes - step.weight_bytes).tolist()
        return list(zip(names, self.devices, predicted, self.run.growth, strict=True))

    def _shown(self) -> RenderableType:
        heads = numbers("memory beyond weights", *memory_heads(self.run))
        devices = table(self.run.predicted.problem.name, "device", "on", *heads)
        for name, on, predicted, growth in self._memory():
            devices.add_row(name, on, memory(predicted), *grown(self.run, growth))
        compared = [differences_table(self.run)] if self.run.differences else []
        return Group(devices, *compared, *map(Text, measured_sentences(self.run, self.devices, 0)))
