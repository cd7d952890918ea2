"""A plan on disk, `*.plan.json`: devices by name, so that people can read it and edit it.

    {"schema": "placelab.plan", "version": 4,
     "plan": {"placement": {"layers.0": "gpu:0", "": "gpu:1"}, "order": "longest_path"}}

    {"schema": "placelab.plan", "version": 4,
     "plan": {"stages": [{"modules": ["embedding", "layers.0"], "devices": ["gpu:0", "gpu:1"], "recompute": true},
                         {"modules": [""], "devices": "gpu:2"}],
              "schedule": {"micro_batches": 8, "order": "early_backward_a"}}}

`plan` is what is decided, and `found` how it was found. `placement` says by entry (`envs.files.module_entries`) on
which device ops run, or on which several, as replicas that share the batch. `stages` says the same in its place, and
what the stages are; by a placement, ops on the same devices are a stage, numbered in the order of the forward pass. Ops
that are tied go where the first of them goes: backward and update ops where their forward op does.

    {"schema": "placelab.plan", "version": 5,
     "plan": {"placement": {"": ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]}, "mesh": [2, 2],
              "split": {"": [], "layers.0/mm": ["n", "o"], "layers.1/mm": ["n", "i"]}}}

`split` says by entry which index each axis of the `mesh` divides, "" for none, or [] for the batch (`envs.plans.mesh`);
tied ops have that of the first of them, but for one that has an entry of its own name. An axis of the mesh is a number
of equal parts, or a list of their shares. A plan without a split is written as version 4.

    {"schema": "placelab.plan", "version": 5, "plan": {"parallel": {"dp": 4, "tp": 4, "pp": 4, "micro_batches": 32}}}

`parallel` says all of a plan by its degrees, with the options of the placer `parallel`, which makes it for the problem.

`schedule` has what differs from `envs.plans.schedule.Schedule`; with a placement, its `recompute` lists numbers of
stages. `order` is the rule under which the plan was simulated, or a number by entry, the smaller first: {"layers.0": 1,
"": 2}; of tied ops as for `split`. Without an order the plan is run under the rule of its problem.

A file written by `save_plan` says more: which graph and cluster it is for, which placer found it, and what it costs.

Files of versions 1 to 3 have one device per entry and no schedule; entries and the graph's fingerprint are those of op
groups. Those of versions 1 and 2 have no order: the plan is run as it was predicted then, first come, first served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from envs.files.module_entries import ModuleEntries
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, AllReduce, Recomputing, Schedule, Sharing, Update, Zero
from envs.simulation.simulator import Outcome
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.by_name import unknown
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import read_document, write_document
from graphs.foundation.errors import InputError, located
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import FIFO

VERSION = 5
WITHOUT_SPLIT = 4  # the version of plans that divide nothing but the batch
UNTIED = 4  # the first version whose entries are not about op groups

Devices: TypeAlias = str | tuple[str, ...]  # one, or the replicas'


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The graph or cluster that a plan was made for; a fingerprint left empty is not compared."""

    name: str = ""
    fingerprint: str = ""


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the simulator said when the plan was saved."""

    step_seconds: float
    peak_bytes: dict[str, float]  # device name -> bytes


class PlacerSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the plan was found."""

    placer: str = ""
    seed: int = 0
    simulations: int = 0


class StageSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stage: what is in it, and where it runs."""

    modules: tuple[str, ...]  # op names or prefixes
    devices: Devices
    recompute: bool = False


class ScheduleSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `Schedule` has, but for the stages: only what differs from its defaults is written."""

    micro_batches: int = WHOLE_BATCH.micro_batches
    order: str = WHOLE_BATCH.order
    recompute: tuple[int, ...] = ()  # where the stages are not listed
    recompute_at: Recomputing = WHOLE_BATCH.recompute_at
    sharing: Sharing = WHOLE_BATCH.sharing
    update: Update = WHOLE_BATCH.update
    all_reduce: AllReduce = WHOLE_BATCH.all_reduce
    zero: Zero = WHOLE_BATCH.zero
    bucket_bytes: float | None = WHOLE_BATCH.bucket_bytes  # null: no limit, as JSON has no infinity

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleSection | None:
        """What is written of a schedule; None if nothing differs from the default."""
        values = {name: getattr(schedule, name) for name in cls.__struct_fields__}
        changed = {name: value for name, value in values.items() if value != getattr(WHOLE_BATCH, name)}
        return cls(**changed) if changed else None

    def schedule(self, stages: tuple[int, ...] = ()) -> Schedule:
        """The schedule, with (ops,) stages. Raises InputError as `Schedule` does, and for code in place of an order."""
        named_in_file(self.order)
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return Schedule(stages=stages, **values | ({"bucket_bytes": inf} if self.bucket_bytes is None else {}))


class FourthPlanSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is decided in a file of version 4: a placement or stages."""

    placement: dict[str, Devices] = {}  # op name or prefix -> devices
    stages: tuple[StageSection, ...] = ()
    order: str | dict[str, float] = ""  # a rule, or op name or prefix -> number
    schedule: ScheduleSection | None = None


class PlanSection(FourthPlanSection, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is decided: a placement or stages, and what ops are divided by."""

    mesh: tuple[int | tuple[float, ...], ...] = ()  # of each axis equal parts, or shares
    split: dict[str, tuple[str, ...]] = {}  # op name or prefix -> by axis the index
    parallel: dict[str, int | bool | str] | None = None  # in place of all else


class ThirdPlanSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided in a file of version 3."""

    placement: dict[str, str]  # op name or prefix -> device
    order: str | dict[str, float] = ""


class SecondPlanSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided in a file of version 2."""

    placement: dict[str, str]


Decided = TypeVar("Decided", PlanSection, FourthPlanSection, ThirdPlanSection, SecondPlanSection)


class PlanFile(msgspec.Struct, Generic[Decided], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file holds since version 2; only the first two and `plan` are needed."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    plan: Decided
    found: PlacerSection = PlacerSection()
    predicted: Predicted | None = None


class FirstPlanFile(PlacerSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file of version 1 holds: the placement and how it was found are at the top."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    predicted: Predicted | None = None
    placement: dict[str, str]


AnyPlanFile: TypeAlias = (
    PlanFile[PlanSection]
    | PlanFile[FourthPlanSection]
    | PlanFile[ThirdPlanSection]
    | PlanFile[SecondPlanSection]
    | FirstPlanFile
)
EARLIER: dict[int, type[AnyPlanFile]] = {
    1: FirstPlanFile, 2: PlanFile[SecondPlanSection], 3: PlanFile[ThirdPlanSection], 4: PlanFile[FourthPlanSection],
}  # fmt: skip


def save_plan(result: PlacerResult, problem: Problem, predicted: Outcome | Timeline, path: Path) -> None:
    """Write a plan and how it was found, each device once per module wherever all ops of the module share it.

    A plan without an order of its own is written with the rule of its problem, under which it was simulated. Raises
    InputError if it is not a plan for this problem.
    """
    plan, names = result.plan, [device.name for device in problem.cluster.devices]
    plan.check(problem)
    entries = ModuleEntries.of_untied(problem.graph)
    order = (
        (plan.order or problem.runtime.order) if isinstance(plan.order, str) else entries.written(plan.order, own=True)
    )
    of_ops = [tuple(names[device] for device in devices) for devices in plan.devices]
    schedule, stages = plan.schedule, plan.schedule.stages
    section = PlanSection(
        placement={} if stages else {entry: _shortly(each) for entry, each in entries.written(of_ops).items()},
        stages=_stage_sections(schedule, entries, of_ops) if stages else (),
        order=order,
        schedule=ScheduleSection.of(replace(schedule, recompute=()) if stages else schedule),
        mesh=plan.mesh,
        split=entries.written(plan.split, own=True) if plan.split else {},
    )
    content = PlanFile(
        schema="placelab.plan",
        version=VERSION if plan.split else WITHOUT_SPLIT,
        graph=Identity(problem.graph.name, entries.units.graph.fingerprint),
        cluster=Identity(problem.cluster.name, problem.cluster.unreserved.fingerprint),
        plan=section,
        found=PlacerSection(result.placer, result.seed, result.simulations),
        predicted=Predicted(predicted.step_seconds, dict(zip(names, predicted.peak_bytes.tolist(), strict=True))),
    )
    write_document(content, path)


def load_plan(path: Path, problem: Problem) -> PlacerResult:
    """The plan in a file, for a problem, and how it was found. Raises InputError as `read_plan` and `SavedPlan.of`."""
    return read_plan(path).of(problem)


def read_plan(path: Path) -> SavedPlan:
    """What a plan file says. Raises InputError, naming it, for one that is missing, damaged, or of another version."""
    remedy = f"`placelab place GRAPH --out {path}` writes one"
    content = read_document(path, PlanFile[PlanSection], version=VERSION, remedy=remedy, earlier=EARLIER)
    with located(path):
        _by_degrees(_decided(content))
    return SavedPlan(path, content)


@dataclass(frozen=True, eq=False)
class SavedPlan:
    """A plan file that was read, of any version."""

    path: Path
    content: AnyPlanFile

    @property
    def is_of_groups(self) -> bool:
        """Whether it says where op groups go, as before version 4: only a problem with as many of them can be meant."""
        return self.content.version < UNTIED

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
            if by_degrees := _by_degrees(decided := _decided(content)):
                return by_degrees(problem)
            plan = _plan(decided, entries, problem.cluster)
            # as the file says: what the graph forbids is refused, not moved
            plan.check(problem)
        found = content if isinstance(content, FirstPlanFile) else content.found
        return PlacerResult(plan, found.placer, found.seed, found.simulations)


def _decided(content: AnyPlanFile) -> PlanSection:
    """What a file of any version decides."""
    section = content if isinstance(content, FirstPlanFile) else content.plan
    if isinstance(section, PlanSection):
        return section
    if isinstance(section, FourthPlanSection):
        return PlanSection(**{name: getattr(section, name) for name in section.__struct_fields__})
    return PlanSection({**section.placement}, order=section.order if isinstance(section, ThirdPlanSection) else FIFO)


def _check_same(what: str, theirs: Identity, given: OpGraph | Cluster, parts: str = "") -> None:
    if theirs.fingerprint and theirs.fingerprint != given.fingerprint:
        other = f" of the same name, but with other ops{parts}" if theirs.name == given.name else ""
        raise InputError(
            f"this plan is for {what} {theirs.name!r} ({theirs.fingerprint}), given {given.name!r} "
            f"({given.fingerprint}){other}; to apply it all the same, remove the {what}'s fingerprint from the file"
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
            return Plan(tuple(devices), named_in_file(decided.order), schedule, split, decided.mesh)
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
