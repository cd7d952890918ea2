"""Size: which plans are too large to be simulated op by op.

Each copy of an op, in micro-batches and replicas, has its seconds on each device of the cluster.
"""

from envs.plans.plan import Plan
from graphs.problem import Problem

MOST_SECONDS = 64_000_000  # of copies of ops on devices: half a GB; ours


def is_too_large(problem: Problem, copies: int) -> bool:
    """Whether a plan with this number of copies of ops is."""
    return copies * len(problem.cluster) > MOST_SECONDS and copies > len(problem.graph)


def copies_of(plan: Plan) -> int:
    """Copies of ops that a plan has, in micro-batches and replicas."""
    return sum(map(len, plan.devices)) * plan.schedule.micro_batches
