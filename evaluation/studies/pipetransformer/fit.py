"""How fast the paper's devices were, and how long they took to launch an op: from its figure 11.

More micro-batches make the bubble shorter, and have more ops to launch: where the two meet says how long a launch
takes, in ops' own time; the throughput itself says how fast ops are. Nothing of what the study compares is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

from evaluation.studies.pipetransformer.published import FIRST, THROUGHPUT
from evaluation.studies.pipetransformer.training import VIT, Machine, Training
from graphs.op_graph import Floats
from placers.elastic.intervals import Setup

SAMPLES = 480  # of a step on each pipeline: about the paper's, and all numbers of micro-batches divide them
LONGEST = 2e-3  # seconds of a launch, on devices of full speed, beyond which nothing is sought
PIPELINES = 2
TOLERANCE = 1e-5  # seconds of a launch


@dataclass(frozen=True)
class Fit:
    """A machine, and what it does."""

    machine: Machine
    throughput: Floats  # (numbers of micro-batches,) images per second


def fitted() -> Fit:
    """The machine whose throughputs are nearest to the figure's, by the squares of their ratios' logarithms."""
    target = np.log(list(THROUGHPUT.values()))

    def off(launch: float) -> float:
        return float((np.log(throughputs(Machine(1.0, launch))) - target).std())

    best = float(minimize_scalar(off, bounds=(0.0, LONGEST), method="bounded", options={"xatol": TOLERANCE}).x)
    speed = float(np.exp((target - np.log(throughputs(Machine(1.0, best)))).mean()))
    # devices that are slower by a factor, and launches that are longer by it, make a step longer by it, but for links
    machine = Machine(speed, best / speed / FIRST, one_by_one=True)
    return Fit(machine, throughputs(machine))


def throughputs(machine: Machine) -> Floats:
    """(numbers of micro-batches,) images per second of two pipelines of eight devices, all layers being trained."""
    training = Training(VIT, machine)
    steps = [training.simulated(Setup(0, 0, FIRST, PIPELINES, FIRST * each), SAMPLES) for each in THROUGHPUT]
    return np.array([1 / step.sample_seconds for step in steps])
