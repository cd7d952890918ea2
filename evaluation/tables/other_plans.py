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
from evaluation.tables.alone import Alone, fastest_alone
from evaluation.tables.step_summary import SAME
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.contract.whole_plans import accelerators
from placers.data_parallel import DataParallel
from placers.fsdp import Fsdp

MOST_COPIES = 100_000  # of ops on devices, whose step is simulated for a row; ours
TRIED = 16  # plans that a placer may simulate, as those of `fits`


@dataclass(frozen=True)
class OtherPlans:
    """What other plans take for the same step."""

    problem: Problem
    step_seconds: float  # of the plan that they are next to
    fits: bool
    alone: Alone | None
    others: dict[str, Timeline]  # data parallelism and FSDP, where they can be had

    @classmethod
    def of(cls, timeline: Timeline, found: PlacerResult | None = None) -> "OtherPlans | None":
        """Those next to a simulated plan; None if it is not of a training step on several devices.

        Of a search that `found` the plan and compared such plans itself, they are those that it compared.
        """
        problem = timeline.problem if timeline.expansion is None else timeline.expansion.given
        if len(problem.cluster) < 2 or not problem.graph.is_training:
            return None
        others = dict(_others(problem, found or PlacerResult(Plan(()))))
        if found is not None and found.runnable is not None:
            others["the best that `placelab run` runs"] = simulate(problem, found.runnable)
        return cls(problem, timeline.step_seconds, timeline.fits, fastest_alone(problem), others)

    def headline(self) -> str:
        """The answer in a sentence: what the plan gains, or that nothing does."""
        taken = f"This plan takes {seconds(self.step_seconds)} a step"
        if self.alone is None:
            return f"{taken}; no device holds everything alone."
        one, faster = f"{self.alone.device} alone, {seconds(self.alone.seconds)}", self._over(self.step_seconds)
        if faster > 1 + SAME:
            return f"{taken}, {ratio(faster)} times as fast as {one}."
        fitting = [each.step_seconds for each in self.others.values() if each.fits]
        if self._over(min(fitting, default=self.alone.seconds)) > 1 + SAME:
            return f"{taken} and gains nothing over {one}; others do: `placelab place` compares all kinds."
        if faster < 1 - SAME:  # others than were looked at may gain
            return f"{taken}, {ratio(1 / faster)} times as long as {one}; `placelab place` compares all kinds."
        return f"More devices gain nothing here over {one}. {taken}."

    def table(self) -> Table:
        """A row for each."""
        made = table("", "plan", *numbers("step", "times as fast as one device"), "memory")
        rows = [("this one", self.step_seconds, self.fits)]
        rows += [(name, each.step_seconds, each.fits) for name, each in self.others.items()]
        if self.alone is not None:
            rows.append((f"{self.alone.device} alone", self.alone.seconds, True))
        for name, taken, fits in rows:
            over = "" if self.alone is None else ratio(self._over(taken))
            made.add_row(name, seconds(taken), over, "fits" if fits else Text("does not fit", style="bold red"))
        return made

    def _over(self, taken: float) -> float:
        return self.alone.seconds / taken if self.alone is not None and taken > 0 else float("nan")


def _others(problem: Problem, found: PlacerResult) -> Iterator[tuple[str, Timeline]]:
    if not problem.graph.samples or len(problem.graph) * len(problem.cluster) > MOST_COPIES:
        return
    several = len(accelerators(problem.cluster)) > 1
    kinds: dict[str, Placer] = {"data parallelism": DataParallel(), "FSDP": Fsdp()} if several else {}
    for name, placer in kinds.items():
        plan = _of_kind(placer, problem, found)
        if plan is None:
            continue
        if len(plan.used) == 1:
            alone = problem.cluster.devices[min(plan.used)].name
            name = f"{alone} alone, {plan.schedule.micro_batches} micro-batches"
        yield name, simulate(problem, plan)


def _of_kind(placer: Placer, problem: Problem, found: PlacerResult) -> Plan | None:
    """The plan that was compared, if any were, or else the placer's; None if it has none, or is the one that found."""
    if found.compared or found.placer == placer.name:
        return found.compared.get(placer.name)
    try:
        return placer.place(problem, budget=TRIED).plan
    except InputError:  # it has no such plan: of op placements alone, of a batch that does not divide
        return None
