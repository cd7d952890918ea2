"""What it costs a thread to issue the step of a profiled model to a GPU, in PyTorch without compilation.

The model is trained in a plain loop, which waits for the device after each phase, outside of what is timed:

    thread   | forward | waits | backward | waits | update | waits |
    device      [ forward ... ]    [ backward ... ]   [ update ]
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec.structs import replace

from envs.costs.profile_file import Profile, save_profile
from envs.running.clock import finish
from envs.running.measuring.eager_step import Clock, EagerStep, part_seconds, timed_ops
from graphs.foundation.errors import reason
from graphs.foundation.quantities import written
from graphs.host import SECONDS, HostEntry
from graphs.op_graph import Floats, OpGraph

QUEUE = 1000  # launches that a device of CUDA takes before the thread has to wait
BEHIND = 0.1  # of the time of a phase: if the device takes longer for the rest, the thread is ahead of it

_log = logging.getLogger("placelab")


def profile_host(profile: Profile, model: str, graph: OpGraph, device: torch.device, out: Path, steps: int) -> Profile:
    """A profile with what issuing the training step of a model takes, also in the file, unless it is there already.

    A processor runs ops in the thread that issues them: its profiles have no host. A warning says so if the step cannot
    be run, as when it does not fit in the device's memory.
    """
    if profile.machine.kind == "cpu" or graph.name in profile.hosts or not graph.is_training:
        return profile
    try:
        step = EagerStep(model, device)
        with step.importing():
            host = host_of(step, timed_ops(graph), steps, lambda: finish(device), time.perf_counter)
    except Exception as error:  # whatever a model raises on a device that it has not been on
        _log.warning("%s: what issuing its step takes was not measured: %s", graph.name, reason(error))
        return profile
    found = replace(profile, hosts={**profile.hosts, graph.name: host})
    save_profile(found, out)
    return found


def host_of(step: EagerStep, ops: Floats, steps: int, wait: Callable[[], None], clock: Clock) -> HostEntry:
    """Seconds for each of the (phases,) ops, in the quietest of some steps; `wait` is for the device.

    A phase is left out that no op belongs to, and one of more ops than a queue takes that are issued faster than the
    device works them off: the thread may have waited for room in the queue.
    """
    taken = part_seconds([call for part in step.parts for call in (part, wait)], steps, wait, clock)
    issued, rest = taken[::2], taken[1::2]
    is_known = (ops > 0) & ~((ops > QUEUE) & (rest > BEHIND * issued))
    return HostEntry(**{
        of: written(float(f"{issued[phase] / ops[phase]:.4g}"), "seconds")
        for phase, of in enumerate(SECONDS[: len(ops)])
        if is_known[phase]
    })  # fmt: skip
