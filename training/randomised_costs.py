"""Op times that no roofline gives, for training: on real machines, ops of a kind take longer than they should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.costs.costs import costs_of
from graphs.problem import Problem

FACTOR = 4.0  # by which the ops of a kind are at most slower or faster


def with_other_times(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem, with the times of all ops of each kind multiplied by a factor, log-uniform from 1/4 to 4."""
    kinds, kind = np.unique(problem.graph.kinds, return_inverse=True)
    factors = np.exp(rng.uniform(-1, 1, len(kinds)) * np.log(FACTOR))
    return replace(problem, op_seconds=costs_of(problem).op_seconds * factors[kind][:, None], timed_by="")
