"""What an export shows: the text, and what rounding the plan to it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.printed import Shown
from evaluation.tables.alone import fastest_alone
from evaluation.tables.step_summary import SAME
from graphs.files.graph_source import GraphSource


@dataclass(frozen=True, eq=False)
class ExportedPlan(Shown):
    """A plan in the words of another program."""

    to: str  # the format
    text: str
    planned: SimulatedPlan
    rounded: SimulatedPlan  # the plan that the text says
    notes: tuple[str, ...] = ()  # what the text takes for granted, and what it does not keep of the plan
    moved: int = 0  # modules that are on other devices than planned
    files: Mapping[str, bytes] = field(default_factory=dict)  # by what their names end in; of most formats one, ""

    @classmethod
    def of(cls, planned: SimulatedPlan, source: GraphSource, to: str) -> ExportedPlan:
        """A plan in a format. Raises InputError for what the format cannot say, and for a graph without its model."""
        from evaluation.exports.formats import OF_PLANS, export_plan  # with torch

        module = None if to in OF_PLANS else source.module()
        written = export_plan(planned.problem, planned.plan, module, to)
        rounded = SimulatedPlan.of(written.problem, written.plan)
        files = written.files or {"": (written.text + "\n").encode()}
        return cls(to, written.text, planned, rounded, written.notes, written.moved, files)

    @property
    def cost_seconds(self) -> float:
        """How much longer a simulated step takes than as planned; less than 0 if it is shorter."""
        return self.rounded.timeline.step_seconds - self.planned.timeline.step_seconds

    def to_json(self) -> dict[str, object]:
        """The text, and both step times."""
        return {
            "to": self.to,
            "text": self.text,
            "planned_seconds": self.planned.timeline.step_seconds,
            "rounded_seconds": self.rounded.timeline.step_seconds,
            "rounding_seconds": self.cost_seconds,
            "fits": self.rounded.timeline.fits,
            "notes": list(self.notes),
        }

    @property
    def cost(self) -> str:
        """What rounding costs, and whether one device is faster, in sentences."""
        before, after = (each.timeline.step_seconds for each in (self.planned, self.rounded))
        said = f"A simulated step takes {1e3 * after:.4g} ms as exported, {1e3 * before:.4g} ms as planned: "
        if after > before:
            said += f"rounding costs {1e3 * self.cost_seconds:.4g} ms, {(after - before) / before:.1%}."
        elif self.moved:
            said += "it is no longer, although some modules are on other devices."
        else:
            said += "rounding costs nothing."
        alone = fastest_alone(self.planned.problem) if len(self.planned.plan.used) > 1 else None
        if alone is not None and alone.seconds < after * (1 - SAME):
            said += f" {alone.device} alone is faster, {1e3 * alone.seconds:.4g} ms."
        if not self.rounded.timeline.fits:
            said += f" It does not fit: {self.rounded.timeline.overflow()}."
        return said

    def _shown(self) -> RenderableType:
        return Group(Text(self.text, no_wrap=True, overflow="ignore"), *map(Text, self.notes), Text(self.cost))
