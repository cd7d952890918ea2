"""Runtimes of training problems: one of several is drawn for each, and what its host takes, for random ops.

recipe      runtime = ["parallelize", "parallelize", "run", "ideal"]
problems    half of them are run by the user's own loop, a quarter by a process for each device, ...
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphs.cluster import Cluster
from graphs.host import HOSTS, SECONDS
from graphs.problem import Problem
from graphs.runtime import Runtime
from training.problems.chance import one_of
from training.problems.random.random_cluster import log_uniform


def drawn_runtime(runtimes: Sequence[Runtime], cluster: Cluster, rng: np.random.Generator) -> Runtime:
    """One of them, for a cluster: a CPU runs an op in the thread that issues it, so that there is no host."""
    runtime = one_of(runtimes, rng)
    if runtime.host is None or not cluster.is_cpu.any():
        return runtime
    return runtime.with_knobs(host="none", **({"graphs": "false"} if runtime.replays else {}))


def with_host_seconds(
    problem: Problem, op_seconds: float, bounds: tuple[float, float], rng: np.random.Generator
) -> Problem:
    """The problem on machines whose host is as slow for its ops as is drawn; one without a named host as it is.

    To issue a forward op takes the host of PyTorch's own loop (`HOSTS["eager"]`) between `bounds` times `op_seconds`,
    drawn log-uniformly; all else that a host does keeps its ratio to that.
    """
    host = problem.runtime.host
    if host is None or not host.name:
        return problem
    factor = log_uniform(rng, *bounds) * op_seconds / HOSTS["eager"].forward
    measured = host.with_seconds({of: factor * getattr(host, of) for of in SECONDS})
    return replace(problem, cluster=replace(problem.cluster, hosts={host.name: measured}))
