"""Size: which plans are too large to be simulated op by op, and of which problems few are.

Each copy of an op, in micro-batches and replicas, has its seconds on each device of the cluster.
"""

from envs.plans.plan import Plan
from graphs.problem import Problem

MOST_SECONDS = 64_000_000  # of copies of ops on devices: half a GB; ours


LARGE = 200_000  # copies of ops, one on each device: a plan then takes seconds to simulate, and minutes to divide; ours


def is_large(problem: Problem) -> bool:
    """Whether plans of it take so long to simulate that those are left out that can hardly be the best."""
    return len(problem.graph) * len(problem.cluster) > LARGE


def is_too_large(problem: Problem, copies: int) -> bool:
    """Whether a plan with this number of copies of ops is."""
    return copies * len(problem.cluster) > MOST_SECONDS and copies > len(problem.graph)


def copies_of(plan: Plan) -> int:
    """Copies of ops that a plan has, in micro-batches and replicas."""
    return sum(map(len, plan.devices)) * plan.schedule.micro_batches


def said_of_large(problem: Problem) -> str:
    """A sentence on what is left out of a large problem."""
    return (
        f"planner: {len(problem.graph):,} ops on {len(problem.cluster)} devices are many: no splits are searched for, "
        "stages are not divided inside, and pipelines are searched for only as long as they are near the best plan."
    )
