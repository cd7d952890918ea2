"""A plan's step as one op for each device and phase, for what does not run op by op.

    simulated, on one device         f0   f1 ··· f2   b2 ··· b1 b0 ····· u0 u1       ··· it waits, or adds up gradients
    here                             forward.0      backward.0           update.0

Each lasts until its phase ends there, whatever a device waits for in it: so the step takes what that of the plan takes,
and a device holds as much.
"""

import numpy as np

from envs.plans.plan import Plan
from envs.simulation.simulator import LaidOut, simulate
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem

PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)
NAMES = tuple(phase.name.lower() for phase in PHASES)


def by_phase(problem: Problem, plan: Plan) -> LaidOut:
    """The ops forward, backward and update of the first device of a plan, then those of the next, in ascending order.

    A device has all three, though the plan may have no op of some phase there.
    """
    timeline = simulate(problem, plan)
    given, cluster = timeline.problem.graph, problem.cluster
    phase = np.minimum(given.phase, Phase.UPDATE)
    devices = np.unique(timeline.placement)
    ends = np.zeros((len(devices), len(PHASES)))
    np.maximum.at(ends, (np.searchsorted(devices, timeline.placement), phase), timeline.finish)
    ends = np.maximum.accumulate(ends, axis=1)
    held = cluster.hold_seconds[devices, None]  # after the op before
    seconds = np.diff(ends, axis=1, prepend=0.0) - np.where(np.arange(len(PHASES)) > 0, held, 0.0)
    names = tuple(f"{name}.{device}" for device in devices.tolist() for name in NAMES)
    ops = np.arange(len(names)).reshape(len(devices), len(PHASES))
    outputs = np.zeros(ops.shape)
    outputs[:, 0] = (timeline.peak_bytes - timeline.held_bytes)[devices]
    graph = OpGraph(
        given.name, names, tuple(f"phase.{name}" for _ in devices for name in NAMES), np.zeros(len(names)),
        np.zeros(len(names)), outputs.ravel(), np.concatenate([ops[:, :2], ops[:, 1:]]),
        weights=timeline.held_bytes[devices] / problem.bytes_per_weight_byte,
        weight_uses=np.stack([ops[:, 0], np.arange(len(devices))], axis=1),
        phase=np.tile([int(each) for each in PHASES], len(devices)),
    )  # fmt: skip
    costs = np.repeat(np.maximum(seconds, 0.0).ravel()[:, None], len(cluster), axis=1)
    laid = Problem(graph, cluster, problem.optimizer, op_seconds=costs, timed_by=problem.timed_by)
    return LaidOut(laid, np.repeat(devices, len(PHASES)), "")
