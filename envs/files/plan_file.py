"""A plan on disk, `*.plan.json`: written, and read for a problem; `envs.files.plan_sections` says what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from envs.files.module_entries import ModuleEntries
from envs.files.plan_sections import (
    EARLIER,
    UNTIED,
    VERSION,
    AnyPlanFile,
    Devices,
    Identity,
    PlacerSection,
    PlanFile,
    PlanSection,
    Predicted,
    ScheduleSection,
    StageSection,
    latest,
)
from envs.plans.conditions import Conditions
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import Outcome
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.by_name import unknown
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import read_document, write_document
from graphs.foundation.errors import InputError, located
from graphs.op_graph import Ints, OpGraph
from graphs.problem import Problem
from graphs.runtime import order_of


def save_plan(result: PlacerResult, problem: Problem, predicted: Outcome | Timeline, path: Path) -> None:
    """Write a plan and how it was found, each device once per module wherever all ops of the module share it.

    It is written as made for what the result says or, if that says nothing, for the conditions of the problem, for
    which it is predicted. Raises InputError if it is not a plan for this problem.
    """
    plan, names = result.plan, [device.name for device in problem.cluster.devices]
    plan.check(problem)
    entries = ModuleEntries.of_untied(problem.graph)
    conditions = Conditions.of(problem)
    made_for = result.made_for or conditions
    in_all = Predicted(predicted.step_seconds, dict(zip(names, predicted.peak_bytes.tolist(), strict=True)))
    of_ops = [tuple(names[device] for device in devices) for devices in plan.devices]
    schedule, stages = plan.schedule, plan.schedule.stages
    section = PlanSection(
        placement={} if stages else {entry: _shortly(each) for entry, each in entries.written(of_ops).items()},
        stages=_stage_sections(schedule, entries, of_ops) if stages else (),
        order=entries.written(plan.order, own=True) if isinstance(plan.order, tuple) else str(plan.order or ""),
        schedule=ScheduleSection.of(replace(schedule, recompute=()) if stages else schedule),
        mesh=plan.mesh,
        split=entries.written(plan.split, own=True) if plan.split else {},
    )
    content = PlanFile(
        schema="placelab.plan",
        version=VERSION,
        graph=Identity(problem.graph.name, entries.units.graph.fingerprint),
        cluster=Identity(problem.cluster.name, problem.cluster.unreserved.fingerprint),
        made_for=made_for,
        plan=section,
        found=PlacerSection(result.placer, result.seed, result.simulations),
        predicted=in_all if made_for == conditions else None,
    )
    write_document(content, path)


def load_plan(path: Path, problem: Problem) -> PlacerResult:
    """The plan in a file, for a problem, and how it was found. Raises InputError as `read_plan` and `SavedPlan.of`."""
    return read_plan(path).of(problem)


def read_plan(path: Path) -> SavedPlan:
    """What a plan file says. Raises InputError, naming it, for one that is missing, damaged, or of another version."""
    remedy = f"`placelab place GRAPH --out {path}` writes one"
    written: AnyPlanFile = read_document(path, PlanFile, version=VERSION, remedy=remedy, earlier=EARLIER)
    with located(path):
        content = latest(written)
        _by_degrees(content.plan)
    return SavedPlan(path, content)


@dataclass(frozen=True, eq=False)
class SavedPlan:
    """A plan file that was read, of any version."""

    path: Path
    content: PlanFile

    @property
    def is_of_groups(self) -> bool:
        """Whether it says where op groups go, as before version 4: only a problem with as many of them can be meant."""
        return self.content.version < UNTIED

    @property
    def made_for(self) -> Conditions:
        """How it is meant to be run, and what timed it, as the file says."""
        return self.content.made_for

    def is_for(self, problem: Problem) -> bool:
        """Whether it was made for the problem's graph, with the same batch, or does not say for which."""
        return self.content.graph.fingerprint in ("", self._entries(problem).units.graph.fingerprint)

    def _entries(self, problem: Problem) -> ModuleEntries:
        return (ModuleEntries.of if self.is_of_groups else ModuleEntries.of_untied)(problem.graph)

    def of(self, problem: Problem) -> PlacerResult:
        """The plan for a problem, and how it was found.

        The ops of the problem may be tied into any groups, unless the plan sets the ops of one apart. Raises
        InputError, naming the file, if it was made for another graph or cluster, or, before version 4, for another
        number of op groups; if it names an unknown device, op or order, or leaves an op without a device or a stage
        without ops; if the plan is not valid for the problem; and, for degrees, as the placer `parallel` does.
        """
        content = self.content
        with located(self.path):
            entries = self._entries(problem)
            parts = ", costs or `groups`" if self.is_of_groups else " or costs, as in another precision"
            _check_same("graph", content.graph, entries.units.graph, parts)
            _check_same("cluster", content.cluster, problem.cluster.unreserved)
            content.made_for.check_no_code()
            if by_degrees := _by_degrees(content.plan):
                return replace(by_degrees(problem), made_for=content.made_for)
            plan = _plan(content.plan, entries, problem.cluster)
            # as the file says: what the graph forbids is refused, not moved
            plan.check(problem)
        found = content.found
        return PlacerResult(plan, found.placer, found.seed, found.simulations, made_for=content.made_for)

    def running(self, problem: Problem) -> Ints:
        """(ops,) the device of a problem's cluster on which each op runs by this plan, or -1 if that has left.

        The plan may be for another cluster, batch or precision: devices and ops are found by their names. Raises
        InputError, naming the file, for a plan that is no op placement, or leaves an op without a device.
        """
        with located(self.path):
            decided, entries = self.content.plan, self._entries(problem)
            devices = decided.placement
            if not devices or decided.schedule or not all(isinstance(each, str) for each in devices.values()):
                raise InputError(
                    "a model that is placed again runs by an op placement, and this plan is another kind; name one "
                    "that `placelab place --plans placement` made"
                )
            number = {device.name: position for position, device in enumerate(problem.cluster.devices)}
            try:
                return np.array(entries.read({entry: number.get(str(name), -1) for entry, name in devices.items()}))
            except InputError as error:
                if problem.graph.is_training:
                    raise
                raise InputError(
                    f"{problem.graph.name!r} is a forward pass alone, and this plan is not of it; name one for which "
                    f"`--no-training` was given, too: {error}"
                ) from None


def _check_same(what: str, theirs: Identity, given: OpGraph | Cluster, parts: str = "") -> None:
    if theirs.fingerprint and theirs.fingerprint != given.fingerprint:
        other = f" of the same name, but with other ops{parts}" if theirs.name == given.name else ""
        raise InputError(
            f"this plan is for {what} {theirs.name!r} ({theirs.fingerprint}), given {given.name!r} "
            f"({given.fingerprint}){other}; to apply it all the same, remove `{what}.fingerprint` from the file"
        )


# ---- from a plan to what is written ------------------------------------------------------------------------------


def _shortly(devices: tuple[str, ...]) -> Devices:
    return devices[0] if len(devices) == 1 else devices


def _stage_sections(
    schedule: Schedule, entries: ModuleEntries, of_ops: Sequence[tuple[str, ...]]
) -> tuple[StageSection, ...]:
    """The stages with what is in them; `of_ops` are (ops,) names of devices, the same within a stage."""
    modules: list[list[str]] = [[] for _ in range(max(schedule.stages) + 1)]
    for entry, stage in entries.written(schedule.stages).items():
        modules[stage].append(entry)
    return tuple(
        StageSection(tuple(inside), _shortly(of_ops[schedule.stages.index(stage)]), stage in schedule.recompute)
        for stage, inside in enumerate(modules)
    )


# ---- from what is written to a plan ------------------------------------------------------------------------------


def _by_degrees(decided: PlanSection) -> Callable[[Problem], PlacerResult] | None:
    """What makes the plan of degrees, the placer `parallel`; None without. Raises InputError as its `build` does."""
    if decided.parallel is None:
        return None
    if msgspec.structs.replace(decided, parallel=None) != PlanSection():
        raise InputError("`parallel` says all of a plan; remove what the file says in addition, or `parallel`")
    spec = by_name.spec_of("parallel", {knob: named_in_file(str(each)) for knob, each in decided.parallel.items()})
    return by_name.build("placers", spec).place  # type: ignore[no-any-return]


def _plan(decided: PlanSection, entries: ModuleEntries, cluster: Cluster) -> Plan:
    """The plan that a file decides. Raises InputError for what names nothing, or says nothing of an op."""
    number = {device.name: position for position, device in enumerate(cluster.devices)}
    stages = _stages(decided.stages, entries)
    if stages:
        of_stages = [_numbers(f"stage {stage}", each.devices, number) for stage, each in enumerate(decided.stages)]
        devices = [of_stages[stage] for stage in stages]
        if decided.placement:
            raise InputError("the plan has a placement, and stages, which say the same; remove one of them")
    else:
        placement = {entry: _numbers(repr(entry), each, number) for entry, each in decided.placement.items()}
        devices = entries.read(placement)
    with located("split"):
        split = tuple(entries.read(decided.split, own=True)) if decided.split else ()
    schedule = _schedule(decided, stages)
    if isinstance(decided.order, str):
        with located("order"):
            rule = order_of(named_in_file(decided.order)) if decided.order else None
        return Plan(tuple(devices), rule, schedule, split, decided.mesh)
    with located("order"):
        numbers = entries.read(decided.order, own=True)
    order = tuple(each + 0.0 for each in numbers)  # -0.0 becomes 0.0
    return Plan(tuple(devices), order, schedule, split, decided.mesh)


def _numbers(where: str, devices: Devices, number: Mapping[str, int]) -> tuple[int, ...]:
    """Devices by their names. Raises InputError for none, and for an unknown one."""
    names = (devices,) if isinstance(devices, str) else devices
    if not names:
        raise InputError(f"{where} has no device; name one, or several for replicas")
    for name in names:
        if name not in number:
            raise InputError(unknown("device", name, number))
    return tuple(number[name] for name in names)


def _stages(sections: Sequence[StageSection], entries: ModuleEntries) -> tuple[int, ...]:
    """(ops,) the stage of each op; empty if none are listed. Raises InputError for one without ops."""
    if not sections:
        return ()
    stage_of: dict[str, int] = {}
    for stage, section in enumerate(sections):
        for module in section.modules:
            if module in stage_of:
                raise InputError(f"{module!r} is in stage {stage_of[module]} and again in stage {stage}; keep one")
            stage_of[module] = stage
    stages = entries.read(stage_of)
    for stage in range(len(sections)):
        if stage not in stages:
            raise InputError(f"stage {stage} has no op: other stages name all of its modules more closely; remove it")
    return tuple(stages)


def _schedule(decided: PlanSection, stages: tuple[int, ...]) -> Schedule:
    """How the step is run. Raises InputError for what no schedule can have."""
    section = decided.schedule or ScheduleSection()
    with located("schedule"):
        schedule = section.schedule(stages)
    if stages and section.recompute:
        raise InputError(
            "the schedule lists stages to recompute, but stages are listed by themselves; give these `recompute: true`"
        )
    again = tuple(stage for stage, each in enumerate(decided.stages) if each.recompute)
    return replace(schedule, recompute=again) if again else schedule
