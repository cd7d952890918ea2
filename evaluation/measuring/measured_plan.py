"""MeasuredPlan: a plan that was run, next to its simulation."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from envs.expansion.layout import Layout
from envs.running.measured_run import MeasuredRun, RunSteps
from envs.running.process_memory import Growth
from envs.running.training_job import Training
from envs.timelines.timeline import Timeline
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.measuring.measured_rows import TimeComparison, device_rows, kind_rows, link_rows
from evaluation.measuring.measured_table import measured_table, passes_sentence
from evaluation.records.printed import Printed


@dataclass(frozen=True, eq=False)
class PlanRun(Printed):
    """A plan, its simulated step, and what its steps took."""

    planned: SimulatedPlan
    run: RunSteps
    training: Training
    devices: tuple[str, ...]  # (devices,) on what each ran, as PyTorch calls it

    @property
    def predicted_seconds(self) -> float:
        """The simulated step time."""
        return self.run.predicted.step_seconds

    @property
    def measured_seconds(self) -> float:
        """The median step time."""
        return self.run.step_seconds

    def require_equal(self) -> None:
        """Raise DiffersError, naming the tensor, if the first step was compared, and is not the unplaced model's."""
        self.run.require_equal()


@dataclass(frozen=True, eq=False)
class MeasuredPlan(PlanRun):
    """A plan that was run in processes, one per device, each of whose ops was timed."""

    run: MeasuredRun
    cores: int  # how many cores there are for the processes; 0 if they ran on GPUs

    @property
    def predicted(self) -> Timeline:
        """The simulated step."""
        return self.run.predicted

    @property
    def measured(self) -> Timeline:
        """The measured step whose time is the median."""
        return self.run.measured

    def save_chart(self, path: Path) -> None:
        """Draw both steps below one another. Raises InputError for another ending than of an image or a page."""
        from evaluation.drawing.timeline_plots import save_steps  # with matplotlib, a second to import

        save_steps({"predicted": self.predicted, "measured": self.measured}, path)

    def to_json(self) -> dict[str, Any]:
        """Both steps in numbers; what is unknown is null."""
        run = self.run
        devices = [
            {"device": row.name, "on": on, "busy": _numbers(row.busy), "idle": _numbers(row.idle),
             "predicted_growth_bytes": row.predicted_growth, **growth_record(row.measured_growth)}
            for row, on in zip(device_rows(run), self.devices, strict=True)
        ]  # fmt: skip
        return {
            "problem": self.planned.problem.name,
            "placer": self.planned.result.placer,
            "training": asdict(self.training),
            "devices": devices,
            "kinds": {row.name: _numbers(row) | {"ops": row.count} for row in kind_rows(run)},
            "links": {row.name: _numbers(row) | {"transfers": row.count, "bytes": row.bytes} for row in link_rows(run)},
            **steps_record(run),
        }

    def _shown(self) -> RenderableType:
        problem, plan, other = self.planned.problem, self.planned.plan, ""
        if not (plan.is_placement or plan.split) and len(Layout(problem, plan).stage_devices) > 1:  # a pipeline
            other = passes_sentence(self.planned.timeline.step_seconds, self.predicted_seconds)
        return Group(*measured_table(self.run, self.devices, self.cores), *[Text(other)] * bool(other))


def steps_record(run: RunSteps) -> dict[str, Any]:
    """Step times, losses and differences in numbers; what is unknown is null."""
    return {
        "predicted_seconds": run.predicted.step_seconds,
        "measured_seconds": run.step_seconds,
        "shortest_seconds": float(np.min(run.counted)),
        "step_seconds": run.seconds.tolist(),
        "losses": [_known(loss) for loss in run.losses],
        "equal": run.is_equal if run.differences else None,
        "not_compared": run.not_compared,
        "differences": {
            each.what: {"largest": _known(each.largest), "relative": _known(each.relative), "tensor": each.name}
            for each in run.differences
        },
    }


def growth_record(growth: Growth) -> dict[str, float | None]:
    """Bytes that memory has grown by; null if unknown."""
    return {"measured_growth_bytes": _known(growth.held), "reserved_growth_bytes": _known(growth.reserved)}


def _numbers(row: TimeComparison) -> dict[str, float]:
    return {"predicted_seconds": row.predicted, "measured_seconds": row.measured}


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
