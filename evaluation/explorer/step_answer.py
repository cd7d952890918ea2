"""What the page shows of a step, as JSON: the same charts and tables as the page of a report, and where modules are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from envs.timelines.timeline import Timeline
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.graph_page import coloured, graph_chart
from evaluation.drawing.graph_plots import modules_of
from evaluation.drawing.sections import sheets_html, step_sheets, step_tiles
from evaluation.drawing.step_figure import step_chart
from evaluation.explorer.module_homes import ModuleHomes
from evaluation.explorer.tried_steps import TriedStep, TriedSteps
from evaluation.records.formatting import memory, seconds, share
from evaluation.tables.step_summary import StepSummary
from graphs.problem import Problem

SAME = 0.0005  # of a step: what changes less is no change


class StepAnswers:
    """What is said of the steps of one problem."""

    def __init__(self, tried: TriedSteps, problem: Problem) -> None:
        self.tried, self.problem = tried, problem
        self.homes = ModuleHomes.of(problem.graph)
        self._chart = (0, "")  # number of a step, and its chart

    @cached_property
    def modules(self) -> dict[str, Any]:
        """What no plan changes: paths, the module that each is in, and its ops, (modules,) each; and devices."""
        return {
            "paths": self.homes.paths, "parent": self.homes.parent, "ops": self.homes.ops(),
            "devices": [device.name for device in self.problem.cluster.devices],
        }  # fmt: skip

    def graph(self, step: TriedStep) -> str:
        """The chart of the graph, coloured by the devices of a step."""
        graph = self.problem.graph
        return graph_chart(graph, modules_of(graph), self._labels(step.placed), named=self.modules["devices"])

    def chart(self, step: TriedStep) -> str:
        """The chart of a step, as reports have it; that of a step that was just asked for is kept."""
        if self._chart[0] != step.number:
            self._chart = (step.number, step_chart({"": step.placed.timeline}))
        return self._chart[1]

    def of(self, step: TriedStep) -> dict[str, Any]:
        """All that the page shows of a step, but for its chart, which takes longer to draw."""
        placed, timeline = step.placed, step.placed.timeline
        summary = StepSummary.of(timeline)
        device, categories, palette = coloured(self._labels(placed), self.modules["devices"])
        return {
            "number": step.number,
            "tried": [self._row(each) for each in self.tried.steps.values()],
            "said": seconds(timeline.step_seconds),
            "change": self.change(step),
            "fits": timeline.fits,
            "seconds": timeline.step_seconds,
            "placer": placed.result.placer,
            "runtime": placed.problem.runtime.name,
            "file": self.tried.file_name(step),
            "commands": list(self.tried.commands(step)),
            "notes": list(placed.result.notes) + ([f"It does not fit: {timeline.overflow()}."] * (not timeline.fits)),
            "tiles": str(sheets_html(tiles=step_tiles(summary))),
            "sheets": str(sheets_html(*step_sheets(summary))),
            "devices": self._devices(timeline),
            "homes": self.homes.devices(placed),
            "busy": self.homes.seconds(timeline),
            "colours": {"device": device.tolist(), "categories": categories, "palette": palette},
        }

    def change(self, step: TriedStep) -> str:
        """How a step compares with the one that it was made from, in words."""
        if step.before not in self.tried.steps:
            return ""
        before = self.tried[step.before].placed.timeline.step_seconds
        ratio = step.placed.timeline.step_seconds / before - 1 if before > 0 else 0.0
        how = "as long as" if abs(ratio) < SAME else f"{abs(ratio):.1%} {'longer' if ratio > 0 else 'shorter'} than"
        return f"{how} step {step.before}"

    def _row(self, step: TriedStep) -> dict[str, Any]:
        timeline = step.placed.timeline
        return {
            "number": step.number, "title": step.title, "said": seconds(timeline.step_seconds),
            "seconds": timeline.step_seconds, "fits": timeline.fits,
        }  # fmt: skip

    def _devices(self, timeline: Timeline) -> list[dict[str, Any]]:
        """Of each device how busy it is, and what it holds at its peak."""
        step = timeline.step_seconds or 1.0
        found = []
        for index, device in enumerate(self.problem.cluster.devices):
            peak, limit = float(timeline.peak_bytes[index]), float(timeline.problem.cluster.memory_bytes[index])
            has_limit = bool(np.isfinite(limit)) and limit > 0
            found.append({
                "name": device.name, "busy": float(timeline.busy_seconds[index]) / step,
                "said": f"busy {share(float(timeline.busy_seconds[index]) / step)}",
                "full": peak / limit if has_limit else 0.0,
                "memory": memory(peak) + (f" of {memory(limit)}" if has_limit else ""), "fits": peak <= limit,
            })  # fmt: skip
        return found

    def _labels(self, placed: SimulatedPlan) -> Sequence[str]:
        """(ops,) the device of each by name, or those of its replicas."""
        names = self.modules["devices"]
        return ["+".join(names[device] for device in devices) for devices in placed.plan.devices]
