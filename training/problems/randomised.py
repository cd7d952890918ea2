"""Domain randomisation (Tobin et al., 2017): a policy that has met many speeds and sizes learns what they mean.

On the same few clusters throughout, it learns the training graphs by heart instead, and places others worse.
"""

from dataclasses import replace

import numpy as np

from envs.costs.costs import costs_of
from graphs.cluster import Cluster
from graphs.problem import Problem

LEAST_MEMORY = 0.6  # of what devices have: with less, most training graphs fit nowhere
UNEQUAL = 2.0  # by which a device's own speed and memory are at most multiplied or divided in addition
SLOWEST = 32.0  # times as slow as the others is a slow device at most, as a processor is among accelerators
ROOMY = 16.0  # times the memory is what it then has
FACTOR = 4.0  # by which the ops of a kind are at most slower or faster
TIGHT = 16.0  # times less memory is what the others may then have


def randomised(
    cluster: Cluster, spread: float, rng: np.random.Generator, *, unequal: bool = False, slow: float = 0.0
) -> Cluster:
    """A copy whose compute speed, memory and bandwidth are multiplied by a factor each, the same for all devices.

    The logarithm of a factor is uniform between those of 1 / spread and spread; memory loses no more than 40%. With
    `unequal` each device has two more factors of its own, of speed and of memory, drawn alike between 1/2 and 2. Each
    device is then slow with probability `slow`, but one: by a factor drawn alike from 1 to 32, with 16 times the
    memory, and all others then lose memory, by a common factor from 1 to 16.
    """
    speed, memory, bandwidth = np.exp(rng.uniform(-1, 1, 3) * np.log(spread))
    own = np.exp(rng.uniform(-1, 1, (len(cluster), 2)) * np.log(UNEQUAL)) if unequal else np.ones((len(cluster), 2))
    least = LEAST_MEMORY
    if unequal and slow > 0:
        slowed = rng.random(len(cluster)) < slow
        slowed[rng.integers(len(cluster))] = False
        if slowed.any():
            own[slowed] *= np.stack([SLOWEST ** -rng.random(slowed.sum()), np.full(slowed.sum(), ROOMY)], axis=1)
            own[~slowed, 1] /= TIGHT ** rng.random()
            least = 0.0  # what fits nowhere else goes to the slow ones
    devices = tuple(
        replace(
            device.faster(speed).faster(faster),
            memory_bytes=device.memory_bytes * max(memory * larger, least),
        )
        for device, (faster, larger) in zip(cluster.devices, own, strict=True)
    )
    return replace(cluster, devices=devices, bandwidth=cluster.bandwidth * bandwidth)


def with_other_times(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem, with the times of all ops of each kind multiplied by a factor, log-uniform from 1/4 to 4.

    On real machines, ops of a kind take longer than a roofline says.
    """
    kinds, kind = np.unique(problem.graph.kinds, return_inverse=True)
    factors = np.exp(rng.uniform(-1, 1, len(kinds)) * np.log(FACTOR))
    return replace(problem, op_seconds=costs_of(problem).op_seconds * factors[kind][:, None], timed_by="")
