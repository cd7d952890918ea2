"""What ops and messages of a problem really cost, as likely as steps that were run let it be: a posterior distribution.

The simulator with the problem's own costs is the prior. A machine differs from it in what each device takes for the
kinds of ops that take most of the time, in seconds that running adds to each op, and in what links carry and messages
take. Each is a standard normal number, `SPREADS` of which say what is usual. The log of a step is off by noise whose
variance is unknown (inverse gamma, integrated out), so a simulator that errs in other ways is trusted less, not fitted.

Elliptical slice sampling (Murray, Adams and MacKay 2010, algorithm in figure 2) draws from it, without any step size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from envs.costs.costs import costs_of
from envs.prepared_problem import outcomes_of
from envs.simulation.simulator import Simulator
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

KINDS = 3  # of ops that take most of the time, each with a factor of its own on each device; one for all others
STEPS = 12  # of the sampler between two draws
NOISE, CERTAINTY = 0.03, 2.0  # of the log of a step, before anything was run, and how many runs that counts for


class Spreads(NamedTuple):
    """Standard deviations of what a machine differs by, of logs; or in mean op times, where there may be nothing."""

    device: float = 0.4  # log seconds of all ops of a device
    kind: float = 0.2  # log seconds of a kind of op on a device
    each: float = 0.15  # log seconds of a single op on a device
    op: float = 0.2  # seconds that each op takes more
    bandwidth: float = 0.5  # log bytes/s of all links
    message: float = 0.3  # seconds that each message takes more


SPREADS = Spreads()


class LikelyCosts:
    """Draws problems that differ in what ops and messages cost, as likely as the steps that were run let them be."""

    def __init__(self, problem: Problem, generator: np.random.Generator) -> None:
        """`problem` has the step time as its objective."""
        self._problem, self._generator = problem, generator
        self._op_seconds = costs_of(problem).op_seconds
        self._kind = _kinds(problem, self._op_seconds)  # (ops,)
        takes = self._op_seconds.mean(axis=1)
        self._mean = float(takes[takes > 0].mean()) if takes.any() else 0.0
        self._placements, self._priorities = list[Ints](), list[Floats]()
        self._seconds = list[float]()
        devices = self._op_seconds.shape[1]
        self._state = np.zeros(devices * (2 + int(self._kind.max(initial=0)) + len(self._kind)) + 3)

    def add(self, placement: Ints, priorities: Floats, seconds: float) -> None:
        """A placement, (units,), took some seconds under its priorities, (ops,), which are empty if none are read."""
        self._placements.append(placement)
        self._priorities.append(priorities)
        self._seconds.append(seconds)

    def draw(self) -> Problem:
        """A likely problem; the given one as long as nothing was run."""
        if not self._seconds:
            return self._problem
        likelihood = self._log_likelihood(self._state)
        for _ in range(STEPS):
            likelihood = self._slice(likelihood)
        return self._of(self._state)

    def _slice(self, likelihood: float) -> float:
        """A step of elliptical slice sampling; returns the log likelihood where it ends."""
        random, before = self._generator, self._state
        ellipse = random.standard_normal(len(before))
        least = likelihood - random.standard_exponential()
        angle = random.uniform(0.0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            self._state = before * np.cos(angle) + ellipse * np.sin(angle)
            found = self._log_likelihood(self._state)
            if found > least or high - low < 1e-6:
                return found
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = random.uniform(low, high)

    def _log_likelihood(self, state: Floats) -> float:
        """Of the steps that were run, up to a constant."""
        simulator = Simulator(self._of(state))
        ordered = np.array(self._priorities) if len(self._priorities[0]) else None
        simulated = outcomes_of(simulator, np.array(self._placements), ordered).step_seconds
        errors = np.log(np.maximum(self._seconds, 1e-30)) - np.log(np.maximum(simulated, 1e-30))
        spread = CERTAINTY * NOISE**2 + float((errors**2).sum()) / 2
        return -(CERTAINTY + len(errors) / 2) * float(np.log(spread))

    def _of(self, state: Floats) -> Problem:
        """The problem whose costs differ by so much."""
        problem, devices = self._problem, self._op_seconds.shape[1]
        op, bandwidth, message = state[-3:]
        by_device, by_op, by_kind = np.split(state[:-3].reshape(-1, devices), [1, 1 + len(self._kind)])
        logs = SPREADS.device * by_device + SPREADS.kind * by_kind[self._kind] + SPREADS.each * by_op
        more = SPREADS.op * self._mean * abs(op) * (self._op_seconds > 0)
        cluster = replace(
            problem.cluster,
            latency=problem.cluster.latency + SPREADS.message * self._mean * abs(message),
            bandwidth=problem.cluster.bandwidth * np.exp(SPREADS.bandwidth * bandwidth),
        )
        return replace(problem, op_seconds=self._op_seconds * np.exp(logs) + more, cluster=cluster)


def _kinds(problem: Problem, op_seconds: Floats) -> Ints:
    """(ops,) the number of each op's kind, if it is one of those that take most of the time, or else `KINDS`."""
    names, kind = np.unique(np.array(problem.graph.kinds), return_inverse=True)
    heaviest = np.argsort(-np.bincount(kind, op_seconds.mean(axis=1), len(names)), kind="stable")[:KINDS]
    number = np.full(len(names), len(heaviest))
    number[heaviest] = np.arange(len(heaviest))
    found: Ints = number[kind]
    return found
