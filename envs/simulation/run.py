"""The state of one run of the engine: its tasks, its resources, and its events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.blueprint import NONE, Blueprint, Indices, Records
from graphs.op_graph import Floats

TASKS, STARTING, COPIES, CONTENDED, ENDED, MOMENTS = 0, 1, 2, 3, 4, 5  # counters

TASK = np.dtype(
    [
        ("seconds", np.float64),
        ("start", np.float64),  # seconds
        ("ready", np.float64),  # seconds
        ("priority", np.float64),  # of its op
        ("op", np.uint32),  # the op it computes, or whose output or message it carries
        ("output", np.uint32),  # what it makes or carries
        ("destination", np.uint32),  # the device it computes on, or carries to; NONE on a multicast channel
        ("waiting", np.uint32),  # in-edges of an op whose tensor is not there yet
        ("next", np.uint32),  # in its list: a queue, the children of a task in a heap, or the ops that have ended
        ("child", np.uint32),  # the first one, in a heap
        ("arrivals", np.uint32),  # of a transfer, the first of the edges it serves
        ("before", np.uint32),  # of an op that takes time, the one before it on its device
    ],
    align=True,
)
RESOURCE = np.dtype(
    [
        ("running", np.uint32),  # task, or what it does instead
        ("first", np.uint32),  # of its queue: head of the list or root of the heap
        ("last", np.uint32),  # of its queue: end of the list
        ("sent", np.uint32),  # of a device, the output that was sent to it last
        ("transfer", np.uint32),  # of a device, the latest one to it; of a channel, the latest one over it
        ("ran", np.uint32),  # of a device, its last op that takes time
        ("moment", np.uint32),  # of a device, the latest
        ("parts", np.uint32),  # of a device, how many parts of its moments were put aside
        ("since", np.float64),  # seconds at which it last was free, or is again; STARTED if what it runs can't give way
        ("may_idle", np.float64),  # of a device, seconds for which it may still be idle
    ],
    align=True,
)
EVENT = np.dtype(
    [
        ("seconds", np.float64),
        ("resource", np.uint32),  # whose task ends; resources + i if it is transfer i, over a free link
    ],
    align=True,
)

MOMENT = np.dtype(
    [
        ("seconds", np.float64),
        ("task", np.uint32),
        ("before", np.uint32),  # the one before it on its device
    ],
    align=True,
)
PENDING = np.dtype(
    [
        ("messages", np.uint32),  # that a device has sent or received, and has not been held for
        ("received", np.uint32),  # the latest transfer that it received
        ("bytes", np.float64),  # of the messages
    ]
)


class Run(NamedTuple):
    """The state of one run, and afterwards its result."""

    counters: Indices  # (6,) tasks so far; resources due at this instant; copies in streams, and whether some contend
    # for a channel; tasks that have ended; moments at which memory changes
    tasks: Records  # (tasks,)
    resources: Records  # (resources,)
    events: Records  # (4 x what may run at once,) ascending, in a window that moves to the right
    served: Indices  # (edges,) the next edge that the same transfer serves
    carried: Indices  # (edges,) the transfer of what each data edge carries; NONE on one device
    ended: Indices  # (tasks,) in this order, or in that of issue
    moments: Records  # (2 tasks + 1,) at which the memory of a device changes, but for ops that take time
    parts: Indices  # (devices, 32) the latest moment of each part that was put aside
    freed_on: Indices  # (tasks,) the device on which what each makes is known to be freed
    due: Indices  # (resources,) the resources that are DUE
    seen: Indices  # (devices,) scratch
    pending: Records  # (devices,) where messages hold devices
    may_idle: Floats  # (devices,) seconds that each may be idle before the run is given up; infinite unless set
    order: Indices  # (ops,) in which a host issues them; this and what follows is empty without a host
    sequence: Indices  # (ops,) in which it has issued them for this placement, unless by a process for each device
    issued: Floats  # (ops,) seconds at which each has been; with streams (tasks,), copies after ops
    awaited: Indices  # (ops,) edges into each that its thread waits for; with streams (tasks,): edges that a copy
    # carries, and whose producers have not been issued
    next_op: Indices  # (devices,) the first op that has not been issued, or is being issued
    clocks: Floats  # (devices,) seconds at which each thread has issued all so far; where there is one, the first
    busy: Indices  # (devices,) whose threads issue a node of autograd, the first to have done so last
    free: Indices  # (2 devices,) whose threads may take one, in their order
    free_at: Floats  # (devices,) seconds from which each could start what it starts, were that issued
    charge: Floats  # (ops,) seconds of the thread of its device; this and what follows only with a process for each
    next_issued: Indices  # (ops,) the op that is issued next on its device
    followed_by: Indices  # (ops,) the op that its thread does not issue until each has ended; NONE for most
    latest: Indices  # (devices,) scratch
    sorted_by: Floats  # (ops,) the priorities that `order` follows
    owed: Floats  # (devices,) seconds of the thread for messages since its last op
    heads: Indices  # (resources,) the first in the stream of each that is one; this and what follows only where devices
    # are streams
    following: Indices  # (2 tasks,) what comes next in the stream
    run_on: Indices  # (calls of modules,) the device of all that each needs; this and the next only where some are seen
    seen_seconds: Floats  # (ops,) what each takes a thread longer, if it takes time
    step: Floats  # (1,) seconds at which the last op ends of those in streams so far; infinite if the run is given up

    @classmethod
    def room_for(cls, blueprint: Blueprint) -> Run:
        """Buffers for any placement."""
        ops, devices = len(blueprint.ops), len(blueprint.kind)
        messages = len(blueprint.outputs) - ops
        tasks = ops + messages + min(len(blueprint.inputs) - messages, ops * (devices - 1))
        resources, launched = len(blueprint.servers), len(blueprint.issue)
        processed, threads = launched if blueprint.in_order else 0, devices if launched else 0
        streamed = tasks if blueprint.streams else 0
        at_once = resources + (0 if blueprint.free == NONE else tasks - ops)

        order = np.arange(launched, dtype=np.uint32)
        if blueprint.streams:  # which no priority changes
            order[blueprint.issue["position"]] = np.arange(launched)

        def indices(size: int) -> Indices:
            return np.zeros(size, np.uint32)

        run = cls(
            indices(6), np.zeros(tasks, TASK), np.zeros(resources, RESOURCE), np.zeros(4 * at_once, EVENT),
            indices(len(blueprint.edges)), indices(len(blueprint.edges)), indices(tasks),
            np.zeros(2 * tasks + 1, MOMENT), np.zeros((devices, 32), np.uint32), indices(tasks), indices(resources),
            indices(devices), np.zeros(devices, PENDING), np.full(devices, np.inf), order, indices(launched),
            np.zeros(max(launched, streamed)), indices(max(launched, streamed)), indices(threads), np.zeros(threads),
            indices(threads), indices(2 * threads), np.zeros(threads), np.zeros(processed), indices(processed),
            indices(processed), indices(threads if processed else 0), np.full(processed, np.nan), np.zeros(threads),
            indices(resources if streamed else 0), indices(2 * streamed), indices(len(blueprint.modules)),
            np.zeros(ops if len(blueprint.modules) else 0), np.zeros(1),
        )  # fmt: skip
        run.tasks["op"][:ops] = run.tasks["output"][:ops] = np.arange(ops)
        return run
