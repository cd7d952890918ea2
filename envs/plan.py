"""Plan: one way of spreading a graph over devices. How it was found is said by a `PlacerResult` around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem


@dataclass(frozen=True)
class Plan:
    """The devices of every op. Plans are equal if they decide the same.

    An op placement gives each op one device; the tuple leaves room for an op on several.
    """

    devices: tuple[tuple[int, ...], ...]  # (ops,) device indices of each op

    def __post_init__(self) -> None:
        """Raise InputError for an array, or other devices that are not a tuple for each op."""
        if not isinstance(self.devices, tuple) or not all(isinstance(several, tuple) for several in self.devices[:1]):
            raise InputError(
                "a Plan takes a tuple of devices for each op; Plan.of(placement) makes one of a device per op, "
                "Plan.of_units(problem, placement) of a device per unit"
            )

    @classmethod
    def of(cls, placement: NDArray[np.integer] | Sequence[int]) -> Plan:
        """Plan from one device per op, (ops,)."""
        return cls(tuple((int(device),) for device in placement))

    @classmethod
    def of_units(cls, problem: Problem, placement: NDArray[np.integer] | Sequence[int]) -> Plan:
        """Plan from one device per unit of the problem's graph, (units,): tied ops share a device by construction.

        A unit on a device that the graph forbids is moved to one that it allows (`Problem.made_allowed`).
        """
        return cls.of(problem.made_allowed(np.asarray(placement, np.int64))[problem.graph.units])

    @property
    def placement(self) -> Ints:
        """(ops,) the device of each op."""
        return np.array([devices[0] for devices in self.devices], np.int64)

    def per_unit(self, problem: Problem) -> Ints:
        """(units,) the device of each unit of the problem's graph."""
        devices = np.zeros(problem.graph.num_units, np.int64)
        devices[problem.graph.units] = self.placement
        return devices

    def check(self, problem: Problem) -> None:
        """Raise InputError for other ops, unknown devices, tied ops apart, and ops where the graph forbids them."""
        graph, cluster = problem.graph, problem.cluster
        if len(self.devices) != len(graph):
            raise InputError(
                f"this plan is for another graph: it places {len(self.devices)} ops, {graph.name!r} has {len(graph)}"
            )
        placement = self.placement
        unknown = np.flatnonzero((placement < 0) | (placement >= len(cluster)))
        if len(unknown):
            raise InputError(
                f"op {graph.names[unknown[0]]!r} is placed on device {placement[unknown[0]]}; "
                f"cluster {cluster.name!r} has devices 0 to {len(cluster) - 1}"
            )
        first = problem.units.first_op[graph.units]
        apart = np.flatnonzero(placement != placement[first])
        if len(apart):
            op, anchor = apart[0], first[apart[0]]
            raise InputError(
                f"op {graph.names[op]!r} must share a device with {graph.names[anchor]!r}, but they are on "
                f"{cluster.devices[placement[op]].name!r} and {cluster.devices[placement[anchor]].name!r}"
            )
        if problem.allowed is not None:
            forbidden = np.flatnonzero(~problem.allowed[graph.units, placement])
            if len(forbidden):
                op = int(forbidden[0])
                may = np.flatnonzero(problem.allowed[graph.units[op]])
                raise InputError(
                    f"op {graph.names[op]!r} is placed on {cluster.devices[placement[op]].name!r}; the graph allows "
                    f"{', '.join(cluster.devices[device].name for device in may)}"
                )

    def check_single(self, problem: Problem, why: str) -> None:
        """Raise InputError as `check` does, and for an op on several devices, which the error says `why` to refuse."""
        self.check(problem)
        for name, devices in zip(problem.graph.names, self.devices, strict=True):
            if len(devices) > 1:
                raise InputError(f"op {name!r} is placed on {len(devices)} devices; {why}")
