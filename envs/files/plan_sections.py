"""What a plan file holds, `*.plan.json`, of any version: devices by name, so that people can read it and edit it.

    {"schema": "placelab.plan", "version": 6, "made_for": {"runtime": "parallelize", "precision": "bf16-mixed"},
     "plan": {"placement": {"layers.0": "gpu:0", "": "gpu:1"}}}

    {"schema": "placelab.plan", "version": 6,
     "plan": {"stages": [{"modules": ["embedding", "layers.0"], "devices": ["gpu:0", "gpu:1"], "recompute": true},
                         {"modules": [""], "devices": "gpu:2"}],
              "schedule": {"micro_batches": 8, "order": "early_backward_a"}}}

`plan` is what is decided, and `found` how it was found. `placement` says by entry (`envs.files.module_entries`) on
which device ops run, or on which several, as replicas that share the batch. `stages` says the same in its place, and
what the stages are; by a placement, ops on the same devices are a stage, numbered in the order of the forward pass. Ops
that are tied go where the first of them goes: backward and update ops where their forward op does.

    {"schema": "placelab.plan", "version": 6,
     "plan": {"placement": {"": ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]}, "mesh": [2, 2],
              "split": {"": [], "layers.0/mm": ["n", "o"], "layers.1/mm": ["n", "i"]}}}

`split` says by entry which index each axis of the `mesh` divides, "" for none, or [] for the batch (`envs.plans.mesh`);
tied ops have that of the first of them, but for one that has an entry of its own name. An axis of the mesh is a number
of equal parts, or a list of their shares.

    {"schema": "placelab.plan", "version": 6, "plan": {"parallel": {"dp": 4, "tp": 4, "pp": 4, "micro_batches": 32}}}

`parallel` says all of a plan by its degrees, with the options of the placer `parallel`, which makes it for the problem.

`schedule` has what differs from `envs.plans.schedule.Schedule`; with a placement, its `recompute` lists numbers of
stages. Its `shares` are by stage: [[3, 1]] where the first of two replicas takes three quarters. `order` is the plan's
own, if its placer chose one: a number by entry, the smaller first, {"a": 1, "": 2}, of tied ops as for `split`; or a
rule. Without one the plan is run under the rule of the runtime.

`made_for` says how the plan was meant to be run, and what timed it (`envs.plans.conditions`). A file written by
`save_plan` says it, and also which graph and cluster it is for, which placer found it, and what it costs.

Files of versions 1 to 5 were made for the runtime `ideal`, under the rule that they have as `order`; those of versions
1 and 2, which have none, first come, first served. Files of versions 1 to 4 have no `mesh`, `split` and `parallel`, and
those of versions 1 to 3 one device per entry and no schedule; their entries and the graph's fingerprint are those of op
groups.
"""

from __future__ import annotations

from math import inf
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from envs.costs.costs import BY_LINKS
from envs.plans.conditions import Conditions
from envs.plans.schedule import (
    WHOLE_BATCH,
    AllReduceOrDefault,
    Recomputing,
    Schedule,
    Shares,
    Sharing,
    Update,
    Zero,
)
from graphs.devices.reserve import NONE
from graphs.foundation.code_in_files import named_in_file
from graphs.runtime import FIFO, IDEAL

VERSION = 6
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
    order: str = WHOLE_BATCH.order.name
    recompute: tuple[int, ...] = ()  # where the stages are not listed
    recompute_at: Recomputing = WHOLE_BATCH.recompute_at
    sharing: Sharing = WHOLE_BATCH.sharing
    shares: tuple[Shares, ...] = WHOLE_BATCH.shares
    update: Update = WHOLE_BATCH.update
    all_reduce: AllReduceOrDefault = WHOLE_BATCH.all_reduce
    zero: Zero = WHOLE_BATCH.zero
    shard_group: int = WHOLE_BATCH.shard_group
    offload: bool = WHOLE_BATCH.offload
    bucket_bytes: float | None = WHOLE_BATCH.bucket_bytes  # null: no limit, as JSON has no infinity

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleSection | None:
        """What is written of a schedule; None if nothing differs from the default."""
        values = {name: getattr(schedule, name) for name in cls.__struct_fields__}
        changed = {name: value for name, value in values.items() if value != getattr(WHOLE_BATCH, name)}
        if "order" in changed:
            changed["order"] = schedule.order.name
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


class EarlierPlanFile(msgspec.Struct, Generic[Decided], frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file of versions 2 to 5 holds."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    plan: Decided
    found: PlacerSection = PlacerSection()
    predicted: Predicted | None = None


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a plan file holds; only the first two and `plan` are needed."""

    schema: Literal["placelab.plan"]
    version: int
    graph: Identity = Identity()
    cluster: Identity = Identity()
    made_for: Conditions = Conditions()
    plan: PlanSection
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
    PlanFile
    | EarlierPlanFile[PlanSection]
    | EarlierPlanFile[FourthPlanSection]
    | EarlierPlanFile[ThirdPlanSection]
    | EarlierPlanFile[SecondPlanSection]
    | FirstPlanFile
)
EARLIER: dict[int, type[AnyPlanFile]] = {
    1: FirstPlanFile,
    2: EarlierPlanFile[SecondPlanSection],
    3: EarlierPlanFile[ThirdPlanSection],
    4: EarlierPlanFile[FourthPlanSection],
    5: EarlierPlanFile[PlanSection],
}


def latest(content: AnyPlanFile) -> PlanFile:
    """What a file of any version says, as one of the latest version would. Raises InputError for an unknown order."""
    if isinstance(content, PlanFile):
        made_for = content.made_for
        is_silent = made_for.runtime and not made_for.reserve  # as files were written before they said `none`
        return replace(content, made_for=replace(made_for, reserve=NONE)) if is_silent else content
    section = content if isinstance(content, FirstPlanFile) else content.plan
    found = content if isinstance(content, FirstPlanFile) else content.found
    order = getattr(section, "order", FIFO.name)
    given = {name: getattr(section, name) for name in PlanSection.__struct_fields__ if hasattr(section, name)}
    by_rule = isinstance(order, str)
    return PlanFile(
        schema=content.schema,
        version=content.version,
        graph=content.graph,
        cluster=content.cluster,
        made_for=Conditions(
            runtime=(IDEAL.with_knobs(order=order) if by_rule and order else IDEAL).name,
            cost_model=BY_LINKS,  # they knew no shares of peaks but by name
            reserve=NONE,
        ),
        plan=PlanSection(**given | ({"order": ""} if by_rule else {})),
        found=PlacerSection(found.placer, found.seed, found.simulations),
        predicted=content.predicted,
    )
