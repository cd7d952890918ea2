"""The trials of a sweep as a table, the best first."""

from dataclasses import dataclass

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from evaluation.records import formatting
from evaluation.records.printed import Printed
from training.runs.sweep import Sweep

SHOWN = 20  # trials


@dataclass(frozen=True)
class SweepReport(Printed):
    """A sweep, to be shown."""

    sweep: Sweep

    def to_json(self) -> list[dict[str, object]]:
        """Every trial, in the order in which they were begun."""
        return [
            {
                "trial": each.number,
                "changes": each.changes,
                "folder": str(each.folder),
                "failed": each.why or None,
                "step_over_bound": None if np.isnan(each.value) else each.value,
            }
            for each in self.sweep.trials
        ]

    def _shown(self) -> RenderableType:
        trials = sorted(self.sweep.trials, key=lambda each: (np.isnan(each.value), each.value, each.number))
        keys = list(trials[0].changes) if trials else []
        caption = f"Step over bound: step time over its lower bound, less is better; of {self.sweep.judged_by}."
        table = formatting.table("Trials", "run folder", *formatting.numbers(*keys, "step over bound"), caption=caption)
        for each in trials[:SHOWN]:
            worth = "failed" if each.why else formatting.ratio(each.value)
            table.add_row(str(each.folder), *(_short(each.changes[key]) for key in keys), worth)
        said = [f"And {len(trials) - SHOWN} more."] if len(trials) > SHOWN else []
        said += [f"{each.folder.name} failed: {each.why}" for each in trials if each.why]
        if (best := self.sweep.best) is not None:
            said.append(f"The best is in {best.folder}. The same again: {self.sweep.command_of(best)}")
        return Group(table, *map(Text, said))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
