"""What an export shows: the text, and what rounding the plan to it costs."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.printed import Shown


@dataclass(frozen=True, eq=False)
class ExportedPlan(Shown):
    """A plan in the words of another program."""

    to: str  # the format
    text: str
    planned: SimulatedPlan
    rounded: SimulatedPlan  # the plan that the text says
    notes: tuple[str, ...] = ()  # what the text takes for granted, and what it does not keep of the plan
    moved: int = 0  # modules that are on other devices than planned

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

    def _shown(self) -> RenderableType:
        before, after = (each.timeline.step_seconds for each in (self.planned, self.rounded))
        said = f"Simulated, a step takes {1e3 * after:.4g} ms, as planned {1e3 * before:.4g} ms: "
        if after > before:
            said += f"rounding costs {1e3 * self.cost_seconds:.4g} ms, {(after - before) / before:.1%}."
        elif self.moved:
            said += "it is no longer, though not as planned."
        else:
            said += "rounding costs nothing."
        if not self.rounded.timeline.fits:
            said += f" It does not fit: {self.rounded.timeline.overflow()}."
        return Group(Text(self.text, no_wrap=True, overflow="ignore"), *map(Text, self.notes), Text(said))
