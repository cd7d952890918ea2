"""What an engineer would take without a planner, next to a plan: one device, data parallelism, FSDP."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import numbers, ratio, seconds, table
from evaluation.tables.alone import fastest_alone
from evaluation.tables.step_summary import SAME
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.contract.whole_plans import accelerators
from placers.data_parallel import DataParallel
from placers.fsdp import Fsdp

MOST_COPIES = 100_000  # of ops on devices, whose step is simulated for a row; ours
THIS = "this one"
TRIED = 16  # plans that a placer may simulate, as those of `fits`


@dataclass(frozen=True)
class OtherPlans:
    """What other plans take for the same step."""

    problem: Problem
    step_seconds: float  # of the plan that they are next to
    fits: bool
    alone: tuple[str, float] | None  # how the fastest device takes the step, and seconds; None if none fits
    others: dict[str, Timeline]  # data parallelism and FSDP, where they can be had
    name: str = THIS  # of the plan that they are next to

    @classmethod
    def of(cls, timeline: Timeline, found: PlacerResult | None = None) -> "OtherPlans | None":
        """Those next to a simulated plan; None if it is not of a training step on several devices.

        Of a search that `found` the plan and compared such plans itself, they are those that it compared.
        """
        problem = timeline.problem if timeline.expansion is None else timeline.expansion.given
        if len(problem.cluster) < 2 or not problem.graph.is_training:
            return None
        others, plan = dict(_others(problem, found or PlacerResult(Plan(())))), _plan(timeline)
        same = [name for name, each in others.items() if _plan(each) == plan]
        alone = _alone(problem, others)
        others = {name: each for name, each in others.items() if name not in same}
        if found is not None and found.runnable is not None:
            others["the best that `placelab run` runs"] = simulate(problem, found.runnable)
        return cls(problem, timeline.step_seconds, timeline.fits, alone, others, ", ".join((THIS, *same)))

    def headline(self) -> str:
        """The answer in a sentence: what the plan gains, or that nothing does."""
        taken = f"This plan takes {seconds(self.step_seconds)} a step"
        if self.alone is None:
            return f"{taken}; no device holds everything alone."
        name, alone_seconds = self.alone
        one, faster = f"{name}, {seconds(alone_seconds)}", self._over(self.step_seconds)
        if faster > 1 + SAME:
            return f"{taken}, {ratio(faster)} times as fast as {one}."
        fitting = [each.step_seconds for each in self.others.values() if each.fits]
        if self._over(min(fitting, default=alone_seconds)) > 1 + SAME:
            return f"{taken} and gains nothing over {one}; others do: `placelab place` compares all kinds."
        if faster < 1 - SAME:  # others than were looked at may gain
            return f"{taken}, {ratio(1 / faster)} times as long as {one}; `placelab place` compares all kinds."
        return f"More devices gain nothing here over {one}. {taken}."

    def table(self) -> Table:
        """A row for each."""
        made = table("", "plan", *numbers("step", "speed-up"), "memory")
        rows = [(self.name, self.step_seconds, self.fits)]
        rows += [(name, each.step_seconds, each.fits) for name, each in self.others.items()]
        if self.alone is not None and self.alone[0] not in {name for name, *_ in rows}:
            rows.append((*self.alone, True))
        for name, taken, fits in rows:
            over = "" if self.alone is None else ratio(self._over(taken))
            made.add_row(name, seconds(taken), over, "fits" if fits else Text("does not fit", style="bold red"))
        return made

    def _over(self, taken: float) -> float:
        return self.alone[1] / taken if self.alone is not None and taken > 0 else float("nan")


def _plan(timeline: Timeline) -> Plan:
    return Plan.of(timeline.placement.tolist()) if timeline.expansion is None else timeline.expansion.plan


def _alone(problem: Problem, others: dict[str, Timeline]) -> tuple[str, float] | None:
    """One device with the whole batch or, where none holds that, with in micro-batches, if a plan has that."""
    whole = fastest_alone(problem)
    if whole is not None:
        return f"{whole.device} alone", whole.seconds
    found = [(name, each.step_seconds) for name, each in others.items() if each.fits and len(_plan(each).used) == 1]
    return min(found, key=lambda each: each[1], default=None)


def _others(problem: Problem, found: PlacerResult) -> Iterator[tuple[str, Timeline]]:
    if not problem.graph.samples or len(problem.graph) * len(problem.cluster) > MOST_COPIES:
        return
    several = len(accelerators(problem.cluster)) > 1
    kinds: dict[str, Placer] = {"data parallelism": DataParallel(), "FSDP": Fsdp()} if several else {}
    for name, placer in kinds.items():
        timeline = _of_kind(placer, problem, found)
        if timeline is None:
            continue
        plan = _plan(timeline)
        if len(plan.used) == 1:
            alone = problem.cluster.devices[min(plan.used)].name
            name = f"{alone} alone, {plan.schedule.micro_batches} micro-batches"
        yield name, timeline


def _of_kind(placer: Placer, problem: Problem, found: PlacerResult) -> Timeline | None:
    """The plan that was compared, or else the placer's, as where too few simulations found none that fits.

    None if it has none, or is the one that found.
    """
    compared = found.compared.get(placer.name)
    timeline = None if compared is None else simulate(problem, compared)
    if (timeline is None and (found.compared or found.placer == placer.name)) or (timeline and timeline.fits):
        return timeline
    try:
        other = simulate(problem, placer.place(problem, budget=TRIED).plan)
    except InputError:  # it has no such plan: of op placements alone, of a batch that does not divide
        return timeline
    return other if other.fits else timeline or other
