"""The best plan that fine-tuning found: what is asked first of it, and what its step looks like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from markupsafe import Markup

from envs.bounds import lower_bound
from envs.plan_file import load_plan
from envs.robustness import robustness
from evaluation.comparison import Comparison
from evaluation.drawing.share_plots import share_bars
from evaluation.drawing.split_plots import split_chart
from evaluation.drawing.step_figure import step_chart
from evaluation.formatting import memory, ratio, seconds
from evaluation.reporting.plan_table import plan_sentences, robustness_sentence
from evaluation.reporting.rules import best_rules
from evaluation.reporting.run_data import RunData
from evaluation.reporting.sections import Section, Tile, device_sheet, step_sheets
from evaluation.reporting.step_summary import SAME, StepSummary
from evaluation.run_files import load_problem
from evaluation.simulated_plan import SimulatedPlan
from evaluation.split_rows import split_rows
from graphs.foundation.errors import InputError

TITLE = "The best plan, step by step"


@dataclass(frozen=True, eq=False)
class BestPlan:
    """The plan that a run folder keeps, simulated."""

    found: SimulatedPlan
    tuned: Comparison | None  # of all placers on its problem

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
        tuned = Comparison(run.tuned.records) if run.tuned is not None else None
        return cls(found, tuned if tuned is not None and tuned.problems == (problem.name,) else None)

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
        spending = "What each device spends the step on; a bubble is a wait for what another device still computes."
        figures = [(Markup(step_chart({"": timeline})), doing), (Markup(share_bars(timeline)), spending)]
        if plan.split:
            divided = "What weights and activations are divided by."
            figures.append((Markup(split_chart(split_rows(problem, plan))), divided))
        return Section(TITLE, tuple(said), figures=tuple(figures), sheets=(device_sheet(timeline),))

    def _tiles(self) -> tuple[Tile, ...]:
        summary, timeline = self.summary, self.found.timeline
        bound = lower_bound(self.found.problem, self.found.plan)
        over = f"{ratio(summary.step_seconds / bound)} times the lower bound" if bound > 0 else ""
        tiles = [Tile(seconds(summary.step_seconds), "one step", over)]
        if summary.alone is not None:
            alone = f"{summary.alone.device}, {seconds(summary.alone.seconds)}"
            tiles.append(faster_tile(summary.speedup, "as fast as the fastest device alone", alone))
        else:
            tiles.append(Tile("-", "no device holds everything alone"))
        rule = None if self.tuned is None else best_rules(self.tuned)[0]
        if rule is not None:
            over_rule = rule.seconds / summary.step_seconds if summary.step_seconds > 0 else np.nan
            tiles.append(faster_tile(over_rule, "as fast as the best rule", f"{rule.placer}, {seconds(rule.seconds)}"))
        names = [device.name for device in timeline.problem.cluster.devices]
        fullest = names.index(summary.fullest)
        limit = timeline.problem.cluster.memory_bytes[fullest]
        of = f" of {memory(limit)}" if np.isfinite(limit) else ""
        held = f"fullest: {summary.fullest}, {memory(timeline.peak_bytes[fullest])}{of}"
        tiles.append(Tile("fits" if summary.fits else "does not fit", "in the devices' memory", held, not summary.fits))
        return tuple(tiles)


def faster_tile(times: float, what: str, detail: str) -> Tile:
    """How many times as fast as something; marked if it is slower."""
    return Tile(f"{ratio(times)} times", what, detail, is_bad=bool(times < 1 - SAME))
