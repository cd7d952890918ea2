"""The degrees of a plan: how many replicas, shards and pipeline ranks it has, as programs for training are told.

They are read off the plan as it is, whoever made it: given by degrees (`placers.parallel`), searched or written by
hand. Devices follow one another as Megatron-LM's ranks do: shards, parts of the sequence, replicas, stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from envs.expansion.layout import Layout
from envs.pass_orders import Ranks, takes
from envs.plans.blocks import parts_again
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Zero
from envs.plans.stages import Devices
from evaluation.exports.stage_degrees import StageDegrees, stage_degrees
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools
from graphs.problem import Problem


@dataclass(frozen=True)
class PlanDegrees:
    """How many ways a plan divides a step, and what belongs to weights."""

    inside: StageDegrees  # of a stage
    pp: int  # ranks of the pipeline, each with as many devices
    stages: int  # those that follow one another on a rank are one, if the order of passes has them so
    micro_batches: int
    zero: Zero  # what replicas hold in parts
    shard_group: int  # how many replicas hold all parts between them
    offload: bool  # whether CPUs update weights
    samples: int  # of a step; 0 if it is not known

    @classmethod
    def of(cls, problem: Problem, plan: Plan, to: str) -> PlanDegrees:
        """Those of a plan that has been checked.

        Raises InputError, naming the format, for stages that have not as many devices, for an update after each
        micro-batch, and as `check_equal_replicas` and `stage_degrees`.
        """
        check_equal_replicas(plan, to)
        devices = Layout(problem, plan).stage_devices
        if len({len(each) for each in devices}) > 1:
            counts = ", ".join(str(len(each)) for each in devices)
            raise InputError(
                f"{to} takes as many replicas of each stage, and those of this plan have {counts} devices; give it "
                "a plan of the placer parallel"
            )
        if plan.schedule.update == "micro_batch":
            raise InputError(
                f"{to} updates weights once in a step, and this plan after each micro-batch; give it one with update "
                "'step'"
            )
        inside, schedule = stage_degrees(problem, plan, to), plan.schedule
        stages = len(set(devices)) if plan.is_placement else len(set(joined_stages(plan, devices)))
        zero: Zero = 3 if inside.degrees.sharded else schedule.zero if inside.degrees.dp > 1 else 0
        return cls(
            inside, len(set(devices)), stages, schedule.micro_batches, zero,
            schedule.shard_group or inside.degrees.dp, schedule.offload, problem.graph.samples,
        )  # fmt: skip

    @property
    def dp(self) -> int:
        """Replicas, which divide the batch."""
        return self.inside.degrees.dp

    @property
    def ep(self) -> int:
        """Devices, of the replicas, that divide experts."""
        return self.inside.degrees.ep

    @property
    def cp(self) -> int:
        """Parts of the sequence."""
        return self.inside.degrees.cp

    @property
    def tp(self) -> int:
        """Shards that divide columns and rows of weights."""
        return self.inside.degrees.tp

    @property
    def sequence(self) -> bool:
        """Whether these divide all else along the sequence."""
        return self.inside.degrees.sequence

    @property
    def groups(self) -> int:
        """Groups of replicas, each of which holds all parts."""
        return self.dp // self.shard_group

    @property
    def samples_at_once(self) -> int:
        """Those of a micro-batch on a replica; 0 if it is not known."""
        return self.samples // (self.micro_batches * self.dp)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """A sentence for a text that cannot say the size of the batch."""
        if self.samples:
            return ()
        return (f"The batch is not known: it is {self.micro_batches} micro-batches on each of {self.dp} replicas.",)


EQUAL = "make one of equal shares with `placelab place`: --placer parallel:dp=2, for fsdp parallel:dp=2,zero=3"


def check_equal_replicas(plan: Plan, to: str) -> None:
    """Raise InputError for a plan whose replicas take micro-batches in turns, or unequal shares of them."""
    if plan.schedule.sharing == "turns" and max(map(len, plan.devices), default=1) > 1:
        raise InputError(
            f"{to} takes no plan whose replicas take micro-batches in turns; give one with sharing 'split'"
        )
    if plan.has_shares:
        raise InputError(f"{to} takes no plan whose replicas have unequal shares of the batch; {EQUAL}")


def joined_stages(plan: Plan, devices: Devices) -> tuple[int, ...]:
    """(stages,) the place of the pipeline that each is; `devices` are those of each stage.

    Stages that follow one another on the same devices are one, unless the order of passes takes them apart, as those of
    a V (`envs.expansion.joined_passes`); if there are no others, they are one.
    """
    if len(set(devices)) > 1 and takes_apart(plan, devices):
        return tuple(range(len(devices)))
    runs = [len([*run]) for _, run in groupby(devices)]
    return tuple(place for place, count in enumerate(runs) for _ in range(count))


def takes_apart(plan: Plan, devices: Devices) -> bool:
    """Whether the order of passes takes these stages, (stages,), as they are, so that none are joined."""
    order = plan.schedule.order
    return order != AS_READY and takes(order.built, ranks_of(devices), plan.schedule.micro_batches)


def ranks_of(devices: Devices) -> Ranks:
    """Of each rank of a pipeline its stages; `devices` are those of each stage."""
    hosted: dict[tuple[int, ...], list[int]] = {}
    for stage, each in enumerate(devices):
        hosted.setdefault(each, []).append(stage)
    return tuple(map(tuple, hosted.values()))


def recomputed_ops(problem: Problem, plan: Plan) -> Bools:
    """(ops,) whether each runs again for the backward pass, or is of such an op."""
    found: Bools = parts_again(problem.graph, Layout(problem, plan).stage, plan.schedule) >= 0
    return found
