"""Key figures and timeline of the best plan that fine-tuning found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup

from envs.files.plan_file import load_plan
from envs.simulation.bounds import lower_bound
from envs.simulation.robustness import robustness
from evaluation.comparing.comparison import Comparison
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.sections import Section, Tile, device_sheet, faster_tile, step_sheets, step_tiles
from evaluation.drawing.split_plots import split_chart
from evaluation.drawing.step_figure import step_chart
from evaluation.records.formatting import seconds
from evaluation.records.run_files import load_problem
from evaluation.reporting.findings import fastest_other
from evaluation.reporting.run_data import RunData
from evaluation.tables.plan_table import plan_sentences, robustness_sentence
from evaluation.tables.split_rows import split_rows
from evaluation.tables.step_summary import StepSummary
from graphs.foundation.errors import InputError

TITLE = "The best plan, step by step"


@dataclass(frozen=True, eq=False)
class BestPlan:
    """The plan that a run folder keeps, simulated."""

    found: SimulatedPlan
    rival: tuple[str, float] | None  # the fastest other placer on its problem, by its label, and its seconds

    @classmethod
    def of(cls, run: RunData) -> BestPlan | str:
        """The plan, or a sentence why there is none to show."""
        plan_file, problem_file = run.folder / "best.plan.json", run.folder / "best.problem.json"
        if not (plan_file.is_file() and problem_file.is_file()):
            return "No plan was kept in this folder (best.plan.json and best.problem.json)."
        try:
            problem = load_problem(problem_file)
            found = SimulatedPlan.of(problem, load_plan(plan_file, problem).plan)
            StepSummary.of(found.timeline)
        except InputError as error:
            return f"The plan cannot be drawn: {error}."
        return cls(found, _rival(run, problem.name))

    @cached_property
    def summary(self) -> StepSummary:
        """What is asked first of its step."""
        return StepSummary.of(self.found.timeline)

    def glance(self) -> Section:
        """What is asked first."""
        sentence = () if self.summary.fits else (f"It does not fit: {self.found.timeline.overflow()}.",)
        return Section(
            f"Its best plan: {self.found.problem.name}", sentence, tiles=self._tiles(), sheets=step_sheets(self.summary)
        )

    def details(self) -> Section:
        """All else about it."""
        problem, plan, timeline = self.found.problem, self.found.plan, self.found.timeline
        said = [
            *plan_sentences(timeline, lower_bound(problem, plan), self.found.program_seconds),
            robustness_sentence(robustness(problem, plan)),
        ]
        doing = "What each device and, below, each of the busiest links was doing, and the memory that devices held."
        figures = [(Markup(step_chart({"": timeline})), doing)]
        if plan.split:
            divided = "What weights and activations are divided by."
            figures.append((Markup(split_chart(split_rows(problem, plan))), divided))
        return Section(TITLE, tuple(said), figures=tuple(figures), sheets=(device_sheet(timeline),))

    def _tiles(self) -> tuple[Tile, ...]:
        step, alone, *others = step_tiles(self.summary)
        if self.rival is None:
            return (step, alone, *others)
        label, took = self.rival
        over_rival = took / self.summary.step_seconds if self.summary.step_seconds > 0 else np.nan
        beaten = faster_tile(over_rival, "as fast as the fastest other placer", f"{label}, {seconds(took)}")
        return (step, alone, beaten, *others)


def _rival(run: RunData, problem: str) -> tuple[str, float] | None:
    if run.tuned is None:
        return None
    tuned, notes = Comparison(run.tuned.records), run.tuned.notes
    if tuned.problems != (problem,) or (rival := fastest_other(tuned, notes.before, notes.learned)) is None:
        return None
    return tuned.labels[rival], float(tuned.fitting_seconds[0, tuned.placers.index(rival)])
