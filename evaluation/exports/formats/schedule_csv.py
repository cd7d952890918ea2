"""For torchtitan's pipeline_parallel_schedule_csv: the order of passes, a row of actions for each rank.

It is what PyTorch's runtime of pipelines loads (`_PipelineScheduleRuntime._load_csv` of torch.distributed.pipelining,
format "compute_only"), which sends and receives by itself. torchtitan puts stages on ranks by its
pipeline_parallel_schedule, which is therefore one with as many stages on each.
"""

from dataclasses import replace

from envs.plans.plan import Plan
from envs.running.pipelined.schedule_rows import schedule_rows
from evaluation.exports.degrees import EQUAL
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.problem import Problem


def write(problem: Problem, plan: Plan) -> Written:
    """`0F0,0F1,0B0,...`, the plan itself, as it is. Raises InputError for one without stages on ranks.

    So it does for unequal shares of the batch, which a row of passes does not say, and as `schedule_rows`.
    """
    if plan.is_placement:
        raise InputError(
            "schedule_csv takes pipelines, and this plan is a device for each op; give it one of the placer gpipe or "
            "parallel"
        )
    if plan.has_shares:
        raise InputError(
            "schedule_csv takes no plan whose replicas have unequal shares of the batch, which torchtitan divides "
            f"equally; {EQUAL}"
        )
    schedule = replace(plan.schedule, zero=0, shard_group=0, offload=False)  # which passes are the same
    whole = replace(plan, schedule=schedule)
    rows = schedule_rows(problem, whole).rows()
    return Written("\n".join(map(",".join, rows)), problem, plan)
