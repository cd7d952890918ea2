"""Plan: one way of spreading a graph over devices. How it was found is said by a `PlacerResult` around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.orders import OrderLike
from envs.plans.mesh import Mesh, Split
from envs.plans.plan_validation import check_devices, check_schedule
from envs.plans.schedule import WHOLE_BATCH, Schedule
from envs.plans.split_validation import check_split
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from graphs.runtime import order_of


@dataclass(frozen=True)
class Plan:
    """The devices of every op, in which order they run what is ready, and how the step is scheduled.

    Plans are equal if they decide the same. An op placement gives each op one device, and runs the whole batch at once.
    The devices of an op on several are replicas, which divide the batch, or shards, which are laid out over a mesh, the
    last axis running fastest, and divide the indices that `split` names (`envs.plans.mesh`). The order is None for the
    problem's rule, another rule (`graphs.runtime.order_of`), or a number for each op, the smaller first.
    """

    devices: tuple[tuple[int, ...], ...]  # (ops,) device indices of each op
    order: Extension[Any] | tuple[float, ...] | None = None  # if numbers: (ops,)
    schedule: Schedule = WHOLE_BATCH
    split: tuple[Split, ...] = ()
    """(ops,) by axis of the op's mesh the index that is divided, "" if every shard does the same; () by the batch,
    as replicas do: each normalises over its own part of it.

    Empty: replicas divide the batch, and no op anything else."""
    mesh: Mesh = ()
    """The axes of ops on as many devices as it has, and the last ones those of ops on fewer, if they have as many.

    Empty, or for another number of devices: one axis, of equal parts."""

    def __post_init__(self) -> None:
        """Raise InputError for an array, or other devices that are not a tuple for each op, and for another order."""
        if not isinstance(self.devices, tuple) or not all(isinstance(several, tuple) for several in self.devices[:1]):
            raise InputError(
                "a Plan takes a tuple of devices for each op; Plan.of(placement) makes one of a device per op, "
                "Plan.of_units(problem, placement) of a device per unit"
            )
        if isinstance(self.order, str):
            object.__setattr__(self, "order", order_of(self.order) if self.order else None)
        if not isinstance(self.order, Extension | tuple | None):
            raise InputError(
                f"a Plan's order is a rule, or a tuple with a number for each op, got {type(self.order).__name__}; "
                "Plan.of(placement, order=numbers) takes an array"
            )

    @classmethod
    def of(cls, placement: NDArray[np.integer] | Sequence[int], *, order: OrderLike = None) -> Plan:
        """Plan from one device per op, (ops,), and a rule, its spec, or one number per op."""
        if isinstance(order, str):
            order = order_of(order) if order else None
        elif not isinstance(order, Extension | None):
            order = tuple((np.asarray(order, np.float64) + 0.0).tolist())  # not -0.0: equal numbers are equal bits
        return cls(tuple((int(device),) for device in placement), order)

    @classmethod
    def of_units(
        cls, problem: Problem, placement: NDArray[np.integer] | Sequence[int], *, order: OrderLike = None
    ) -> Plan:
        """Plan from one device per unit of the problem's graph, (units,): tied ops share a device by construction.

        A unit on a device that the graph forbids is moved to one that it allows (`Problem.made_allowed`). An order of
        numbers has one per unit, for all its ops, or one per op.
        """
        units = problem.graph.units
        if not isinstance(order, str | Extension | None) and len(order) == problem.graph.num_units:
            order = np.asarray(order, np.float64)[units]
        return cls.of(problem.made_allowed(np.asarray(placement, np.int64))[units], order=order)

    @property
    def is_placement(self) -> bool:
        """Whether each op is on one device and the whole batch is run at once: such a plan is not expanded."""
        return self.schedule == WHOLE_BATCH and all(len(devices) == 1 for devices in self.devices)

    @property
    def placement(self) -> Ints:
        """(ops,) the device of each op, the first of those of an op on several."""
        return np.array([devices[0] for devices in self.devices], np.int64)

    @property
    def used(self) -> frozenset[int]:
        """The devices that run an op."""
        return frozenset(device for devices in self.devices for device in devices)

    @property
    def has_shares(self) -> bool:
        """Whether devices have unequal shares: replicas of the batch, or shards along an axis of the mesh."""
        return bool(self.schedule.shares) or any(not isinstance(axis, int) for axis in self.mesh)

    def per_unit(self, problem: Problem, who: str = "what is done here") -> Ints:
        """(units,) the device of each unit of the problem's graph.

        Raises InputError, saying `who` takes op placements only, for a plan that is none.
        """
        if not self.is_placement:
            raise InputError(
                f"{who} takes op placements only, and this plan {self._beyond()}; place with --plans placement"
            )
        devices = np.zeros(problem.graph.num_units, np.int64)
        devices[problem.graph.units] = self.placement
        return devices

    def check(self, problem: Problem) -> None:
        """Raise InputError if the plan is not valid for the problem.

        That is one with other ops, unknown or forbidden devices, tied ops apart, an order that is not one finite number
        for each op, a schedule for another graph (`envs.plans.plan_validation`), or indices that its ops do not have or
        cannot divide (`envs.plans.split_validation`).
        """
        graph = problem.graph
        if len(self.devices) != len(graph):
            raise InputError(
                f"this plan is for another graph: it places {len(self.devices)} ops, {graph.name!r} has {len(graph)}; "
                "place this graph"
            )
        self._check_order(problem)
        check_devices(problem, self.devices)
        if not self.is_placement:
            check_schedule(problem, self.devices, self.schedule, of_replicas=not self.split)
        if self.split or self.mesh:
            check_split(problem.graph, self.devices, self.schedule, self.split, self.mesh)

    def _check_order(self, problem: Problem) -> None:
        if not isinstance(self.order, tuple):
            return
        graph = problem.graph
        if len(self.order) != len(graph):
            raise InputError(
                f"this plan's order has {len(self.order)} numbers, {graph.name!r} has {len(graph)} ops; "
                "give one for each, the smaller first"
            )
        wrong = np.flatnonzero(~np.isfinite(self.order))
        if len(wrong):
            raise InputError(
                f"the plan's order gives op {graph.names[wrong[0]]!r} the number {self.order[wrong[0]]}; "
                "expected a finite one"
            )

    def _beyond(self) -> str:
        """What makes it more than an op placement."""
        several = max(map(len, self.devices), default=1)
        if several > 1:
            return f"places ops on {several} devices each"
        if self.schedule.micro_batches > 1:
            return f"runs {self.schedule.micro_batches} micro-batches"
        return "has stages" if self.schedule.stages else "has a schedule"
