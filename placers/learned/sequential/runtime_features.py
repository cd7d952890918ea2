"""What a policy that knows the runtime sees of a unit before anything is placed, next to `UNIT_FEATURES`.

Most are the same for all units. They are encoded with the unit, since a roll-out would count them in for every device
of every unit again. A feature that is added, or means something else from now on, needs a new training.
"""

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import Costs
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH
from placers.learned.features import Column, joined
from placers.learned.sequential.host_threads import deferred_ops, program_position
from placers.learned.sequential.layout import RolloutLayout

RUNTIME_FEATURES = (
    "host", "host_of_step", "host_forward", "alone", "program", "position", "forward", "forward_of_step", "deferred",
    "deferred_of_step", "streams", "barrier", "longest_path", "sends_at_end", "has_host", "thread_per_device",
    "memory_need", "log_devices",
)  # fmt: skip


def runtime_features(problem: Problem, costs: Costs, layout: RolloutLayout) -> NDArray[np.float32]:
    """(units, RUNTIME_FEATURES): seconds over the scale, as logarithms; shares; and 0 or 1."""
    graph, units, runtime, host, count = problem.graph, problem.units, problem.runtime, layout.host, len(layout.limits)
    seconds = layout.op_seconds.mean(axis=1)
    work, total = units.summed(seconds), max(float(seconds.sum()), 1e-30)
    is_forward = graph.phase == Phase.FORWARD
    forward, issue = np.where(is_forward, seconds, 0.0), units.summed(host.op)
    deferred = np.where(deferred_ops(problem, costs), seconds, 0.0)
    position = program_position(problem, costs.op_seconds)
    limits = np.maximum(layout.limits, 1.0)
    columns: dict[str, Column] = {
        "host": np.log1p(10 * issue / layout.scale),
        "host_of_step": np.log1p(10 * issue.sum() / layout.scale) / 4,
        "host_forward": np.log1p(10 * host.op[is_forward].sum() / layout.scale) / 4,
        "alone": np.log(max(float(host.alone.min()), 1e-12) / layout.scale),
        "program": position is not None,
        "position": 0.0 if position is None else (position + 0.5) / len(position),
        "forward": units.summed(forward) / np.maximum(work, 1e-30),
        "forward_of_step": float(forward.sum()) / total,
        "deferred": units.summed(deferred) / np.maximum(work, 1e-30),
        "deferred_of_step": float(deferred.sum()) / total,
        "streams": runtime.streams,
        "barrier": host.barrier,
        "longest_path": runtime.order == LONGEST_PATH,
        "sends_at_end": runtime.sends_at_end,
        "has_host": host.clocked,
        "thread_per_device": host.clocked and bool(host.thread.any()),
        "memory_need": min(layout.live.alone / float(limits.sum()), 2.0),
        "log_devices": np.log2(count) / 4,
    }
    return joined(RUNTIME_FEATURES, columns)
