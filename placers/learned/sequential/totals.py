"""Totals: what a problem comes to as a whole, for the features that no single unit or device shows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.simulation.held_memory import HeldMemory
from graphs.algorithms.components import connected_components
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.runtime import LONGEST_PATH


class Totals(NamedTuple):
    """The parts of a problem that nothing joins, and what one device alone, or all evenly, would take.

        a -> b    c -> d <- e      components 0 0 1 1 1

    An even share is busy time that is the same on all devices: with devices that would take 6 s and 3 s for everything,
    one does a third of the work and the other two thirds, and both take 2 s.
    """

    component: Ints  # (units,) each unit's, numbered from 0
    component_share: Floats  # (components,) of all the work
    alone: Floats  # (devices,) seconds of everything on each device
    even: float  # seconds: each device's even share
    known: Floats  # (devices, features from ALONE on)
    least_per_byte: Floats  # (devices,) seconds per byte over each device's fastest link, either way; 0 if it has none

    @classmethod
    def of(
        cls, problem: Problem, held: HeldMemory, unit_seconds: Floats, share: Floats, per_byte: Floats, scale: float
    ) -> Totals:
        """Of a problem with (units, devices) seconds, (units,) shares of work and (devices, devices) seconds per byte.

        The latter are 0 within a device; the scale is the lower bound of the step in seconds.
        """
        units, alone = problem.units, unit_seconds.sum(axis=0)
        component = connected_components(units.edges, len(units))
        either_way = np.minimum(per_byte, per_byte.T) + np.where(np.eye(len(alone), dtype=np.bool_), np.inf, 0.0)
        return cls(
            component=component,
            component_share=np.bincount(component, weights=share).astype(np.float64),
            alone=alone,
            even=float(1.0 / (1.0 / np.maximum(alone, 1e-30)).sum()),
            least_per_byte=either_way.min(axis=1) if len(alone) > 1 else np.zeros(1),
            known=np.stack(np.broadcast_arrays(
                np.log(np.maximum(alone, 1e-12) / scale),
                np.minimum(float(held.tensor_bytes.sum()) / np.maximum(held.limits, 1.0), 2.0),
                float(problem.runtime.order == LONGEST_PATH),
                np.log(len(problem.graph) / max(len(units), 1)) / 4,
            ), axis=1),
        )  # fmt: skip
