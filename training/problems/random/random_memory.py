"""Memory for random problems: what a plan that saves memory needs of each device, and little more, or much more."""

from dataclasses import replace

import numpy as np

from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from training.problems.random.random_cluster import log_uniform

TIGHT = 1.05, 2.0  # what devices have over what that plan needs of them, where memory is tight
LOOSE = 2.0, 32.0  # and elsewhere
LEAST = 0.25  # of the fullest device's need, that every device has room for


def with_memory(rng: np.random.Generator, problem: Problem, *, tight: bool) -> Problem:
    """The problem, whose cluster has no limit of memory, with memory such that a cheap plan fits.

    Devices have as much as each other, or in proportion to what that plan needs of them.
    """
    peak = Simulator(problem).run(saving_plan(problem)).peak_bytes
    is_uneven = tight and rng.random() < 0.4
    peak = np.maximum(peak, (LEAST if is_uneven else 1.0) * peak.max())
    room = np.maximum(peak * log_uniform(rng, *(TIGHT if tight else LOOSE)), 1.0)
    devices = [replace(each, memory_bytes=own) for each, own in zip(problem.cluster.devices, room, strict=True)]
    return replace(problem, cluster=replace(problem.cluster, devices=tuple(devices)))


def saving_plan(problem: Problem) -> Ints:
    """(units,) of two plans that of lesser peak: stages of like size; the largest units first, each where least is.

    Sizes are bytes of weights, as they are stored, and of outputs.
    """
    units, devices = problem.units, len(problem.cluster)
    sizes = units.weight_bytes(problem.weight_state_bytes) + units.summed(problem.graph.output_bytes)
    plans = np.stack([_stages(sizes, units.order, devices), _largest_first(sizes, devices)])
    peaks = Simulator(problem).run_batch(plans).peak_bytes.max(axis=1)
    chosen: Ints = plans[int(peaks.argmin())]
    return chosen


def _stages(sizes: Floats, order: Ints, devices: int) -> Ints:
    """(units,) consecutive units in an order on each device, (units,), of as many bytes as possible alike."""
    placement = np.zeros(len(sizes), np.int64)
    middle = np.cumsum(sizes[order]) - sizes[order] / 2
    placement[order] = np.minimum(middle / max(sizes.sum(), 1e-30) * devices, devices - 1).astype(np.int64)
    return placement


def _largest_first(sizes: Floats, devices: int) -> Ints:
    """(units,) each unit on the device that has least so far, the largest units first."""
    placement, load = np.zeros(len(sizes), np.int64), np.zeros(devices)
    for unit in np.argsort(-sizes, kind="stable").tolist():
        placement[unit] = load.argmin()
        load[placement[unit]] += sizes[unit]
    return placement
