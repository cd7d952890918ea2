"""SimulatedPlan: a problem, a plan for it, and the plan's simulated step."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from envs.costs.costs import timing
from envs.expansion.layout import Layout
from envs.files.plan_file import load_plan, save_plan
from envs.files.plan_sections import ScheduleSection
from envs.objectives import evaluate_objective
from envs.objectives.replacement import moves_of
from envs.orders import order_name
from envs.plans.conditions import Conditions
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY
from envs.simulation.bounds import lower_bound
from envs.simulation.robustness import Robustness, robustness
from envs.simulation.simulator import LaidOut, simulate
from envs.simulation.step_shares import StepShares
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import memory, seconds, worth
from evaluation.records.printed import Shown
from evaluation.records.record import Record
from evaluation.records.step_errors import timing_remarks
from evaluation.tables.commands_to_run import commands_to_run
from evaluation.tables.plan_latency import PlanLatency
from evaluation.tables.plan_table import plan_lines, plan_table, robustness_sentence
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.foundation.plain_text import printable
from graphs.foundation.progress import waiting
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.placer import Placer, as_result

_OF_STEPS = ("runtime", "cost_model")  # what decides what a step takes


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedPlan(Shown):
    """A plan and its simulated step."""

    problem: Problem
    result: PlacerResult  # the plan, and how it was found
    timeline: Timeline
    search_seconds: float = 0.0  # processor seconds of the placer
    robustness: Robustness | None = None  # under noise and without contention, if computed
    seconds_as_made: float | None = None  # step time of the plan as it was made for, if that is another runtime or cost
    # model than the problem's
    to_run: tuple[str, ...] = ()  # lines that run it, shown last

    @classmethod
    def of(
        cls, problem: Problem, plan: PlacerResult | Plan | Path | str, search_seconds: float = 0.0, *,
        own_order: bool = True, micro_batches: int | None = None,
    ) -> SimulatedPlan:  # fmt: skip
        """Simulate a plan, or that in a file.

        Without its own order it is run under the problem's rule, and `micro_batches` are in place of the plan's own:
        notes say so. Where the runtime leaves the order to the plan, which has none, and the plan does not fit, it gets
        the order of PyTorch if it fits in that. Raises InputError if it is not a plan for this problem.
        """
        if isinstance(plan, Path | str):
            plan = load_plan(Path(plan), problem)
        result = PlacerResult(plan) if isinstance(plan, Plan) else plan
        made = problem if result.made_for is None else result.made_for.steps_as(problem)
        as_made = None if made is problem else _step_seconds(made, result.plan)
        if not own_order:
            result = _by_rule(problem, result)
        if micro_batches is not None:
            result = _in_micro_batches(result, micro_batches)
        timeline = simulate(problem, result.plan)
        if not timeline.fits and own_order and not result.plan.order and problem.runtime.frees_order:
            leaner = replace(result.plan, order=PROGRAM)
            if (under := simulate(problem, leaner)).fits:
                note = f"Under the rule {timeline.order} it does not fit, so it has the order of PyTorch, {PROGRAM}."
                result, timeline = replace(result, plan=leaner, notes=(*result.notes, note)), under
        return cls(problem, result, timeline, search_seconds, seconds_as_made=as_made)

    @classmethod
    def by(cls, placer: Placer, problem: Problem, *, seed: int = 0, budget: int = 1) -> SimulatedPlan:
        """Let a placer place the problem, unless each op may run on one device alone, and simulate its plan.

        Raises InputError for a negative budget.
        """
        if budget < 0:
            raise InputError(f"the budget is {budget} simulations; expected at least 0")
        started = time.process_time()
        with waiting(f"{placer.name} on {problem.name}"):
            if problem.is_placed:
                found = _only_placement(problem, placer.name, seed)
            else:
                found = placer.place(problem, seed=seed, budget=budget)
        search_seconds = time.process_time() - started
        placed = cls.of(problem, as_result(found, placer.name, seed), search_seconds)
        return replace(placed, result=replace(placed.result, made_for=placed.conditions))

    @property
    def plan(self) -> Plan:
        """What is decided."""
        return self.result.plan

    @property
    def conditions(self) -> Conditions:
        """How it is simulated, in words."""
        return Conditions.of(self.problem)

    @cached_property
    def program_seconds(self) -> float:
        """The step time of the same plan with ops in PyTorch's own order; passes keep theirs."""
        if self.timeline.order == PROGRAM.name:
            return self.timeline.step_seconds
        return _step_seconds(self.problem, replace(self.plan, order=PROGRAM))

    def with_robustness(self) -> SimulatedPlan:
        """The same, with how the plan fares under small noise of op and transfer times, and without contention."""
        return replace(self, robustness=robustness(self.problem, self.plan, seed=self.result.seed))

    def with_commands(
        self, graph: object, cluster: object, path: Path | str | None, batch: int | None
    ) -> SimulatedPlan:
        """The same, with the lines that run it, if the graph is said in words: a spec or a file."""
        if not isinstance(graph, str | Path) or not isinstance(cluster, str | Path):
            return self
        fits = self.timeline.fits
        lines = commands_to_run(self.problem, self.result, str(graph), str(cluster), path, batch, fits=fits)
        return replace(self, to_run=lines)

    def against(self, other: SimulatedPlan, name: str) -> SimulatedPlan:
        """The same, with a note on what a step takes by another plan, run likewise, and as that was made for."""
        (said,) = other._as_made() or [f"{seconds(other.timeline.step_seconds)}."]
        return replace(self, result=replace(self.result, notes=(*self.result.notes, f"Against {name}: {said}")))

    def save(self, path: Path) -> None:
        """Write the plan."""
        save_plan(self.result, self.problem, self.timeline, path)

    @cached_property
    def record(self) -> Record:
        """The plan in numbers, as comparisons keep it. Raises InputError as the problem's objective does."""
        problem, found = self.problem, self.robustness
        value, latency = evaluate_objective(problem, self.plan), PlanLatency.of(problem, self.plan)
        return Record(
            problem=problem.name,
            placer=self.result.placer,
            seed=self.result.seed,
            step_seconds=self.timeline.step_seconds,
            fits=self.timeline.fits,
            peak_bytes=tuple(self.timeline.peak_bytes.tolist()),
            simulations=self.result.simulations,
            search_seconds=self.search_seconds,
            lower_bound_seconds=lower_bound(problem, self.plan),
            curve=self.result.curve,
            max_load=1e3 * value if value is not None and problem.objective.name == "max-load" else None,
            cost_model=timing(problem),
            timing_remarks=tuple(timing_remarks(problem)),
            conditions=self.conditions,
            order=self.timeline.order,
            program_seconds=self.program_seconds,
            micro_batches=self.plan.schedule.micro_batches,
            replicas=self._replicas,
            pass_order="" if self.plan.schedule.order == AS_READY else self.plan.schedule.order.name,
            objective=problem.objective.name,
            objective_value=value,
            samples=problem.graph.samples,
            latency_seconds=None if latency is None else latency.seconds,
            alone_seconds=None if latency is None or math.isinf(latency.alone_seconds) else latency.alone_seconds,
            robust_seconds=None if found is None else found.median_seconds,
            worst_seconds=None if found is None else found.worst_seconds,
            free_seconds=None if found is None else found.free_seconds,
            notes=(*self.result.notes, *self._as_made()),
        )

    def _as_made(self) -> list[str]:
        """A sentence on what a step takes as the plan was made for, where that is not as it is simulated."""
        if self.seconds_as_made is None or self.result.made_for is None:
            return []
        both = self.conditions, self.result.made_for
        other = [key for key in _OF_STEPS if getattr(both[1], key) not in ("", getattr(both[0], key))]
        here, made = (" and ".join(f"`{getattr(each, key)}`" for key in other) for each in both)
        return [
            f"{seconds(self.timeline.step_seconds)} under {here}; the plan was made for {made}, where it takes "
            f"{seconds(self.seconds_as_made)}."
        ]

    @property
    def _replicas(self) -> tuple[int, ...]:
        """(stages,) how many devices each has; empty for an op placement."""
        if self.plan.is_placement:
            return ()
        return tuple(map(len, Layout(self.problem, self.plan).stage_devices))

    def require_fit(self) -> None:
        """Raise DoesNotFitError, with what is needed, what there is, and what to try, if the plan does not fit."""
        if self.timeline.fits:
            return
        graph, cluster, timed = self.problem.graph, self.problem.cluster, self.timeline.problem.graph
        state = memory(float(self.problem.weight_state_bytes.sum()))
        capacity = memory(float(cluster.memory_bytes.sum()))
        largest, expansion = int(timed.output_bytes.argmax()), self.timeline.expansion
        which = timed.names[largest] if expansion is None else expansion.held_by(largest)
        whole = "" if self.plan.is_placement else ", more micro-batches, recomputation of more stages"
        is_search = self.result.simulations > 1 and self.search_seconds > 0  # of this command, and not of a file's plan
        failed = "no plan was found that fits" if is_search else "this plan does not fit"
        budget = ", a larger `budget`" if is_search else ""
        raise DoesNotFitError(
            f"{failed} {graph.name!r} on {cluster.name!r}: {self.timeline.overflow()}; parameters and their state need "
            f"{state}, all devices together hold {capacity}, and the largest output is "
            f"{memory(timed.output_bytes[largest])} ({which}). Try more or larger devices, a smaller "
            f"batch{whole}{budget} or `optimizer='sgd'`; {self._other_kinds}"
        )

    @property
    def _other_kinds(self) -> str:
        """Where to look for plans of other kinds, which may fit; of an op placement, what does find them."""
        shown = "`placelab fits` shows what other kinds of plans need"
        if not self.plan.is_placement or self.problem.is_placed or self.result.placer.partition(":")[0] == "planner":
            return shown
        again = " and activations that are computed again" if self.problem.graph.is_training else ""
        return f"{shown}, and `placelab place --plans all`, without a placer, tries micro-batches, divided ops{again}"

    def to_json(self) -> dict[str, Any]:
        """The record, the device of each op by name or those of its replicas, and what each device spends the step on.

        Of a plan that is no op placement also the schedule, the stage of each op if the schedule says it, and by what
        each op is divided, with the axes of the mesh, if the plan says that.
        """
        names, plan = [device.name for device in self.problem.cluster.devices], self.plan
        of_ops, schedule = self.problem.graph.names, ScheduleSection.of(plan.schedule)
        devices = [_one_or_all([names[device] for device in of_op]) for of_op in plan.devices]
        record: dict[str, Any] = msgspec.to_builtins(self.record)
        record |= {"placement": dict(zip(of_ops, devices, strict=True))}
        record |= {"step_shares": StepShares.of(self.timeline).by_name(names)}
        record |= {"mesh": plan.mesh, "split": dict(zip(of_ops, plan.split, strict=True))} if plan.split else {}
        record |= {"schedule": msgspec.to_builtins(schedule)} if schedule else {}
        return record | (
            {"stages": dict(zip(of_ops, plan.schedule.stages, strict=True))} if plan.schedule.stages else {}
        )

    def __repr__(self) -> str:
        return printable(plan_lines(self.timeline, self.result.placer))

    def _shown(self) -> RenderableType:
        said = [] if self.robustness is None else [robustness_sentence(self.robustness)]
        said += self.record.notes
        table = plan_table(
            self.timeline, self.record.lower_bound_seconds, self.program_seconds,
            objective=self._objective_sentences(), found=self.result,
        )  # fmt: skip
        lines = ["To run it:", *(f"  {line}" for line in self.to_run)] if self.to_run else []
        return Group(table, *map(Text, said), *(Text(line, no_wrap=True, overflow="ignore") for line in lines))

    def _objective_sentences(self) -> list[str]:
        """What the plan is worth by an objective that is not the step, and what is moved once to get there."""
        value, name, moves = self.record.objective_value, self.record.objective, moves_of(self.problem, self.plan)
        named = f"objective, {name}," if ":" in name else name
        said = [] if value is None else [f"Its {named} is {worth(name, value)}."]
        moving = [] if moves is None else [f"To move there takes {seconds(moves[0])} once, for {memory(moves[1])}."]
        return said + moving


def _only_placement(problem: Problem, placer: str, seed: int) -> PlacerResult:
    """Of a problem each of whose ops may run on one device alone."""
    found = PlacerResult.of_units(problem, np.zeros(problem.graph.num_units, np.int64), placer, seed)
    return replace(found, notes=("There is nothing to place: each op may run on one device alone.",))


def _one_or_all(names: list[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else names


def _in_micro_batches(result: PlacerResult, count: int) -> PlacerResult:
    """A plan that runs the batch in another number of parts, with a note if that is another."""
    schedule = result.plan.schedule
    if schedule.micro_batches == count:
        return result
    note = f"Simulated in {count} micro-batches, not in the plan's own, {schedule.micro_batches}."
    changed = replace(result.plan, schedule=replace(schedule, micro_batches=count))
    return replace(result, plan=changed, notes=(*result.notes, note))


def _by_rule(problem: Problem, result: PlacerResult) -> PlacerResult:
    """A plan under the rule of the problem, with a note if it had an order of its own."""
    rule, own = (order_name(problem, order) for order in (None, result.plan.order))
    said = [f"Simulated in the order {rule}, not in the plan's own, {own}."] if own != rule else []
    return replace(result, plan=replace(result.plan, order=None), notes=(*result.notes, *said))


def _step_seconds(problem: Problem, plan: Plan) -> float:
    laid = LaidOut.of(problem, plan)
    return float(laid.simulator().seconds(laid.placement[None])[0])
