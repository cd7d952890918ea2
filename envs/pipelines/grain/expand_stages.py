"""A plan at the grain of stages (`envs.pipelines.grain.stage_grain`), its divided stages by their first shards."""

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion
from envs.expansion.layout import Layout
from envs.pipelines.grain.divided_stages import DividedStages, Replicas, StageShare
from envs.pipelines.grain.first_shard import FirstShard
from envs.pipelines.grain.stage_grain import StageGrain
from envs.plans.mesh import Mesh, mesh_of, shards
from envs.plans.plan import Plan
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem


def expand_stages(problem: Problem, plan: Plan) -> Expansion:
    """The expansion of a plan at the grain of stages. Raises InputError if the plan is not one for the problem.

    Of a stage that is divided only the first shard of each replica is in it (`envs.pipelines.grain.divided_stages`).
    Raises InputError as well for a mesh of unequal parts, and for stages on the same devices that are not divided
    alike.
    """
    plan.check(problem)
    if plan.schedule.recompute and plan.schedule.recompute_at == "block":
        raise InputError(
            "the schedule recomputes blocks one by one, which is not timed at the grain of stages; time the plan "
            "op by op, or use recompute_at 'late'"
        )
    if not plan.split:
        stages = StageGrain(problem, plan)
        return expand(stages.coarse, stages.coarse_plan, stages.shared)
    layout, inner = Layout(problem, plan), _axes_of_shards(problem, plan)
    replicas = tuple(Replicas(devices, shards(own)) for devices, own in zip(layout.stage_devices, inner, strict=True))
    stage, batches = layout.stage.tolist(), plan.schedule.micro_batches
    stages = StageGrain(problem, Plan(tuple(replicas[number].leads for number in stage), plan.order, plan.schedule))
    seen = list[StageShare | None]()
    for each, axes in zip(replicas, inner, strict=True):
        if each.shards == 1:
            seen.append(None)
            continue
        split = tuple(
            plan.split[op][-len(axes) :] if inner[number] == axes else ("",) * len(axes)
            for op, number in enumerate(stage)
        )  # ops of stages that are divided otherwise are done by every shard
        parts, first = batches * len(each.leads), each.devices[: each.shards]
        shard = FirstShard.of(problem, split, axes, first, parts, layout.stage, layout.all_reduce)
        seen.append(StageShare.of(shard, stages))
    coarse = stages.coarse
    divided = DividedStages(
        coarse, stages.parcels, stages.block, replicas, batches, lambda share: stages.shared(coarse, share),
        tuple(seen),
    )  # fmt: skip
    return expand(divided.part(1.0), stages.coarse_plan, lambda _, share: divided.part(share))


def _axes_of_shards(problem: Problem, plan: Plan) -> list[Mesh]:
    """(stages,) the last axes of each stage's mesh, from the first that does not divide the batch of all ops on."""
    layout, graph = Layout(problem, plan), problem.graph
    found = [mesh_of(plan.mesh, len(devices)) for devices in layout.stage_devices]
    if any(not isinstance(axis, int) for axes in found for axis in axes):
        raise InputError(
            "a stage is divided into unequal parts, which is not timed at the grain of stages; time the plan op by op"
        )
    apart = [len(axes) for axes in found]  # of each stage the first axis of its shards
    for op, (stage, split, each) in enumerate(
        zip(layout.stage.tolist(), plan.split, descriptions_of(graph), strict=True)
    ):
        batch = "" if each is None or graph.phase[op] >= Phase.UPDATE else each.batch
        other = next((axis for axis, index in enumerate(split) if index != batch), apart[stage])
        apart[stage] = min(apart[stage], other)
    return [axes[first:] for axes, first in zip(found, apart, strict=True)]
