"""Timing plans that each have an order of their own."""

from envs.simulation.blueprint import Blueprint, Indices
from envs.simulation.compiled import compiled
from envs.simulation.engine import time_placements
from envs.simulation.run import Run
from graphs.op_graph import Floats


@compiled
def time_plans(
    blueprint: Blueprint, placements: Indices, priorities: Floats, run: Run, step_seconds: Floats, peak_bytes: Floats
) -> None:
    """Time each of (plans, units) placements under its own (plans, ops) priorities.

    As `time_placements`. The blueprint's priorities are lost.
    """
    memory = min(len(peak_bytes), 1)
    for plan in range(len(placements)):
        for op in range(len(blueprint.ops)):
            blueprint.ops[op].priority = priorities[plan, op]
        time_placements(
            blueprint, placements[plan : plan + 1], run, step_seconds[plan : plan + 1],
            peak_bytes[plan * memory : (plan + 1) * memory],
        )  # fmt: skip
