"""Which plans processes run, by rules about plans and graphs alone: without PyTorch, but for plans that divide ops."""

import numpy as np

from envs.expansion.layout import Layout
from envs.pass_orders import PassKind
from envs.plans.plan import Plan
from envs.running.pipelined.schedule_rows import ScheduleRows, schedule_rows
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem


def check_plan(problem: Problem, plan: Plan) -> None:
    """Raise InputError for a plan that no processes run, whatever the model is, and for one of a forward pass."""
    plan.check(problem)
    if not problem.graph.is_training:
        raise InputError(
            f"{problem.graph.name!r} is a forward pass, and what is run is a training step; plan it without "
            "--no-training, or write the plan for another program with `placelab export`"
        )
    if plan.split:
        from envs.running.partitioned.tensor_placements import TensorPlacements  # with PyTorch, which takes seconds

        TensorPlacements(problem, plan)
    elif is_sharded(problem, plan):
        check_sharded(problem, plan)
    elif not plan.is_placement:
        check_pipeline(problem, plan)


def is_run(problem: Problem, plan: Plan) -> bool:
    """Whether processes run a plan, as far as that is known without the model."""
    try:
        check_plan(problem, plan)
    except InputError:
        return False
    return True


def is_replicated(problem: Problem, plan: Plan) -> bool:
    """Whether a plan, which has been checked, has one stage on several devices and keeps what its passes make."""
    devices, schedule = Layout(problem, plan).stage_devices, plan.schedule
    return len(devices) == 1 < len(devices[0]) and not (plan.split or schedule.recompute or schedule.zero)


def is_sharded(problem: Problem, plan: Plan) -> bool:
    """Whether a plan, which has been checked, has replicas of all ops that hold what belongs to weights in parts."""
    devices = set(Layout(problem, plan).stage_devices)
    return plan.schedule.zero > 0 and len(devices) == 1 and len(next(iter(devices))) > 1


def check_sharded(problem: Problem, plan: Plan) -> tuple[int, ...]:
    """The devices of the replicas of such a plan. Raises InputError for one that cannot be run."""
    plan.check(problem)
    assert is_sharded(problem, plan), "another way runs it"
    devices = Layout(problem, plan).stage_devices[0]
    if plan.schedule.recompute and plan.schedule.recompute_at != "block":
        raise InputError(
            "the schedule recomputes whole stages, and replicas that hold weights in parts (ZeRO) do so block by "
            "block; use recompute_at 'block'"
        )
    if problem.graph.samples < 1:
        raise InputError(
            f"the plan divides the batch among {len(devices)} replicas, and it is not known how many samples the "
            f"inputs of {problem.graph.name!r} are; give all inputs as many"
        )
    return devices


def check_pipeline(problem: Problem, plan: Plan) -> ScheduleRows:
    """The rows of a plan that can be run as a pipeline. Raises InputError for another one."""
    schedule = plan.schedule
    if schedule.recompute and schedule.recompute_at != "late":
        what = "forward passes before their gradients arrive" if schedule.recompute_at == "early" else "block by block"
        raise InputError(
            f"the schedule recomputes {what}, and processes recompute whole stages once gradients have arrived; "
            "use recompute_at 'late'"
        )
    if schedule.offload:
        raise InputError(
            "CPUs update the weights of other devices (offload), which is run of one stage on several devices alone; "
            "leave it out"
        )
    if schedule.zero > 1:
        raise InputError(
            f"replicas hold gradients in parts (zero={schedule.zero}), which is run with one stage alone; use zero 1"
        )
    rows = schedule_rows(problem, plan)
    counts = [len(replicas) for replicas in rows.devices]
    if len(set(counts)) > 1:
        raise InputError(
            f"stages {rows.ranks[0][0]} and {rows.ranks[np.argmax(np.array(counts) != counts[0])][0]} have "
            f"{counts[0]} and {next(count for count in counts if count != counts[0])} replicas, and each replica is "
            "run as a pipeline of its own; give all stages as many replicas"
        )
    if schedule.shares and (sum(map(len, rows.ranks)) > 1 or schedule.recompute):
        raise InputError(
            "replicas have unequal shares of the batch, which are run with one stage that computes nothing again; give "
            "them equal shares, or the plan one stage"
        )
    if schedule.update == "micro_batch" and schedule.micro_batches > 1:
        raise InputError("the schedule updates weights after each micro-batch, which cannot be run; use update 'step'")
    if problem.graph.has_sparse_gradient.any():
        raise InputError(
            f"{problem.graph.name!r} looks rows up with sparse=True, and such gradients are not added up over passes "
            "here; use sparse=False"
        )
    if plan.split:
        raise InputError("the plan has stages and divides ops as well, which cannot be run yet; give it one of the two")
    parts = schedule.micro_batches * counts[0]
    if parts > 1 and problem.graph.samples < 1:
        raise InputError(
            f"the plan divides the batch into {parts} parts, and it is not known how many samples the inputs of "
            f"{problem.graph.name!r} are; give all inputs as many"
        )
    _check_backward(problem, plan, rows)
    return rows


def _check_backward(problem: Problem, plan: Plan, rows: ScheduleRows) -> None:
    """Raise InputError if weight gradients are run apart in a stage that sends no gradients back."""
    parts = PassKind.INPUT_GRADIENT, PassKind.WEIGHT_GRADIENT
    apart = {each.stage for passes in rows.passes for each in passes if each.kind in parts}
    graph, stage = problem.graph, Layout(problem, plan).stage
    source, target = graph.edges.T
    is_gradient = graph.phase == Phase.BACKWARD
    back = is_gradient[source] & is_gradient[target] & (stage[target] < stage[source])
    if lacking := sorted(apart - {0} - {*stage[source[back]].tolist()}):
        raise InputError(
            f"the order runs the gradients of weights apart, and stage {lacking[0]} has no others, since no weight is "
            "trained before it; use an order of whole backward passes"
        )
