"""The simulator: what a step takes under a placement, in seconds and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import Costs, costs_of
from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion
from envs.orders import OrderLike, order_name, priorities_of
from envs.plans.plan import Plan
from envs.simulation.blueprint import Blueprint, Indices, static_bytes
from envs.simulation.engine import time_placements
from envs.simulation.ordered import time_plans
from envs.simulation.run import Run
from envs.timelines.timeline import Timeline, Transfers
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem

Placements = NDArray[np.integer] | Sequence[int] | Sequence[Sequence[int]]

RULES = 3
"""Version of the simulator's rules: raise it whenever a rule changes what a placement takes, in time or memory."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one placement costs."""

    step_seconds: float
    peak_bytes: Floats  # (devices,)
    fits: bool  # whether no device needs more memory than it has


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What each of several placements costs."""

    step_seconds: Floats  # (plans,) of a step, or what another objective has in its place (`envs.objectives`)
    peak_bytes: Floats  # (plans, devices)
    fits: Bools  # (plans,)

    def of(self, plan: int) -> Outcome:
        """What one of the placements costs."""
        return Outcome(float(self.step_seconds[plan]), self.peak_bytes[plan], bool(self.fits[plan]))

    def best(self) -> int:
        """The fastest that fits; if none does, the one with the least peak of its fullest device."""
        if self.fits.any():
            return int(np.where(self.fits, self.step_seconds, np.inf).argmin())
        return int(self.peak_bytes.max(axis=1).argmin())


class Simulator:
    """Times placements of one problem, reusing its buffers; not to be shared between threads.

    `order` is that of the queues of devices and channels: None for the problem's rule, another one or its spec
    (`envs.orders`), or (ops,) numbers, the smallest first. A transfer is as urgent as its producer. Raises InputError
    for another order, or costs that do not match the problem.
    """

    def __init__(self, problem: Problem, *, order: OrderLike = None) -> None:
        self.problem = problem
        self.costs: Costs = costs_of(problem)
        self.order = order_name(problem, order)
        self.simulations = 0  # how many placements it has timed
        priorities = priorities_of(problem, order, self.costs.op_seconds)
        self._has_priorities = len(priorities) > 0 and not problem.runtime.streams
        timed = problem if problem.op_seconds is not None else replace(problem, op_seconds=self.costs.op_seconds)
        self._blueprint = Blueprint.of(timed.as_issued, self.costs.op_seconds, priorities)
        self._runs = [Run.room_for(self._blueprint)]  # one per thread
        self._memory_bytes = problem.cluster.memory_bytes
        self._no_peaks = np.empty((0, len(self._memory_bytes)))

    def run(self, placement: Placements) -> Outcome:
        """Time one placement, (units,) devices."""
        return self.run_batch(np.asarray(placement)[None]).of(0)

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """Time each of (plans, units) placements; the same bits as one at a time, on any number of threads."""
        checked = self.checked(placements)
        peak_bytes = np.empty((len(checked), len(self._memory_bytes)))
        return self._outcomes(self._time(checked, peak_bytes, threads), peak_bytes)

    def run_ordered(self, placements: Placements, priorities: Floats) -> Outcomes:
        """Time each of (plans, units) placements under its own priorities, (plans, ops), the smaller first.

        Where devices are streams the order is PyTorch's, whatever the priorities.
        """
        if self.problem.runtime.streams:
            return self.run_batch(placements)
        checked = self.checked(placements)
        seconds, peak_bytes = np.empty(len(checked)), np.empty((len(checked), len(self._memory_bytes)))
        ordered = self._blueprint._replace(fifo=False, ops=self._blueprint.ops.copy())
        time_plans(ordered, checked, np.ascontiguousarray(priorities), self._runs[0], seconds, peak_bytes)
        self.simulations += len(checked)
        return self._outcomes(seconds, peak_bytes)

    def op_times(self, placement: Placements, priorities: Floats | None = None) -> tuple[Floats, Floats, Outcome]:
        """(ops,) start and (ops,) finish, in seconds, and the outcome of one placement, (units,) devices.

        Like `timeline`, but cheaper in a loop; under other priorities, (ops,), if they are given.
        """
        per_unit = np.asarray(placement)[None]
        order = None if priorities is None else priorities[None]
        outcomes = self.run_batch(per_unit) if order is None else self.run_ordered(per_unit, order)
        tasks = self._latest(self.checked(per_unit)[0]).tasks[: len(self.problem.graph)]
        return tasks["start"].copy(), tasks["start"] + tasks["seconds"], outcomes.of(0)

    @property
    def priorities(self) -> Floats:
        """(ops,) the smaller goes first; empty for first come, first served, and where devices are streams."""
        return self._blueprint.ops["priority"][: None if self._has_priorities else 0].copy()

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) seconds of each of (plans, units) placements; without their memory it takes a quarter less time."""
        return self._time(self.checked(placements), self._no_peaks, threads)

    def for_compiled_code(self) -> tuple[Blueprint, Run]:
        """What compiled code needs to call `time_placements` by itself: the problem, and this simulator's buffers.

        It adds the placements that it times to `simulations`. They are timed as those on several devices.
        """
        return self._blueprint, self._runs[0]

    def _outcomes(self, seconds: Floats, peak_bytes: Floats) -> Outcomes:
        fits: Bools = np.all(peak_bytes <= self._memory_bytes, axis=1)
        return Outcomes(seconds, peak_bytes, fits)

    @cached_property
    def _plain(self) -> Simulator:
        """What times placements on one device."""
        return Simulator(replace(self.problem, runtime=self.problem.runtime.on_one_device))

    def _alone(self, placements: Indices) -> Bools:
        """(plans,) which of (plans, units) placements are on one device, where a loop runs these otherwise."""
        differs = self.problem.runtime.on_one_device != self.problem.runtime
        return (placements == placements[:, :1]).all(axis=1) if differs else np.zeros(len(placements), np.bool_)

    def _latest(self, placement: Indices) -> Run:
        """The buffers of the latest run, which was of a placement, (units,) devices."""
        return (self._plain if self._alone(placement[None]).any() else self)._runs[0]

    def _time(self, placements: Indices, peak_bytes: Floats, threads: int) -> Floats:
        """(plans,) seconds; (plans, devices) peaks are written, unless there is no room for them."""
        self.simulations += len(placements)
        seconds, alone = np.empty(len(placements)), self._alone(placements)
        if not alone.any():
            self._run(placements, seconds, peak_bytes, threads)
            return seconds
        for of, which in ((self, ~alone), (self._plain, alone)):
            times, peaks = seconds[which], peak_bytes[which] if len(peak_bytes) else peak_bytes
            of._run(placements[which], times, peaks, threads)
            seconds[which] = times
            if len(peak_bytes):
                peak_bytes[which] = peaks
        return seconds

    def _run(self, placements: Indices, seconds: Floats, peak_bytes: Floats, threads: int) -> None:
        """Write the seconds and peaks of placements, in the order and with the host's costs of this simulator."""
        threads = min(threads, len(placements))
        while len(self._runs) < threads:
            self._runs.append(Run.room_for(self._blueprint))
        if threads <= 1:
            time_placements(self._blueprint, placements, self._runs[0], seconds, peak_bytes)
        else:
            with ThreadPoolExecutor(threads) as pool:
                plans, times, peaks = (np.array_split(array, threads) for array in (placements, seconds, peak_bytes))
                list(pool.map(time_placements, repeat(self._blueprint), plans, self._runs, times, peaks))

    def noisy_seconds(self, placement: Placements, op_factors: Floats, output_factors: Floats) -> Floats:
        """(draws,) seconds of one placement, (units,) devices, when everything takes N times its time.

        The factors are those of ops, (draws, ops), and of the transfers of each output and each message, (draws, ops +
        messages). Messages that only the step as it is issued has, as sums of gradients, have those of their producers.
        """
        placements, seconds = self.checked(np.asarray(placement)[None]), np.empty(len(op_factors))
        if self._alone(placements).any():
            return self._plain.noisy_seconds(placement, op_factors, output_factors)
        if (issued := self.problem.as_issued.graph) is not self.problem.graph:
            producer = np.arange(len(issued.moved_bytes))
            producer[issued.edge_output] = issued.edges[:, 0]
            output_factors = output_factors[:, producer]
        noisy = self._blueprint._replace(
            op_seconds=self._blueprint.op_seconds.copy(), outputs=self._blueprint.outputs.copy()
        )
        for draw, (of_ops, of_outputs) in enumerate(zip(op_factors, output_factors, strict=True)):
            np.multiply(self._blueprint.op_seconds, of_ops[:, None], out=noisy.op_seconds)
            np.multiply(self._blueprint.outputs["pace"], of_outputs, out=noisy.outputs["pace"])
            time_placements(noisy, placements, self._runs[0], seconds[draw : draw + 1], self._no_peaks)
        self.simulations += len(seconds)
        return seconds

    def timeline(self, placement: Placements) -> Timeline:
        """Time one placement, (units,) devices, and keep the start and finish of everything."""
        per_unit = self.checked(np.asarray(placement)[None])[0]
        outcome = self.run(per_unit)
        static, run = np.zeros(len(self._memory_bytes)), self._latest(per_unit)
        static_bytes(self._blueprint, per_unit, self._runs[0].seen, static)
        ops = len(self.problem.graph)
        per_op = per_unit[self.problem.graph.units].astype(np.int64)
        start = run.tasks["start"][:ops].copy()
        finish = start + run.tasks["seconds"][:ops]
        return Timeline(
            self.problem, per_op, start, finish, self._transfers(run, per_op), outcome.step_seconds,
            outcome.peak_bytes, static, outcome.fits, self.order,
        )  # fmt: skip

    def _transfers(self, run: Run, per_op: Ints) -> Transfers:
        """The copies of a run, in the order in which they arrived."""
        given = self._blueprint.inputs
        consumer = self._blueprint.edges["consumer"][given["edge"]]
        moved = per_op[given["producer"]] != per_op[consumer]
        arrivals = np.stack([run.carried[given["edge"][moved]], per_op[consumer[moved]]], axis=1)
        index, destination = np.unique(arrivals, axis=0).T
        tasks = run.tasks[index]
        finish = tasks["start"] + tasks["seconds"]
        order = np.lexsort((tasks["output"], destination, tasks["op"], finish))
        tasks, destination = tasks[order], destination[order]
        producer, output = tasks["op"].astype(np.int64), tasks["output"].astype(np.int64)
        source = per_op[producer]
        channel = self.problem.cluster.channel[source, destination]
        return Transfers(producer, output, source, destination, channel, tasks["start"].copy(), finish[order])

    def checked(self, placements: Placements) -> Indices:
        """(plans, units) placements as they are timed. Raises InputError for another shape, or unknown devices."""
        array = np.asarray(placements)
        graph, devices = self.problem.graph, len(self._memory_bytes)
        if array.ndim != 2 or array.shape[1] != graph.num_units or not np.issubdtype(array.dtype, np.integer):
            raise InputError(
                f"expected one device index for each of the {graph.num_units} units of {graph.name!r}, "
                f"got an array of {array.dtype} with shape {array.shape[1:] if array.ndim > 1 else array.shape}"
            )
        if array.size and not 0 <= array.min() <= array.max() < devices:
            raise InputError(
                f"cluster {self.problem.cluster.name!r} has devices 0 to {devices - 1}, "
                f"got {array.min() if array.min() < 0 else array.max()}"
            )
        return np.ascontiguousarray(array, np.uint32)


@dataclass(frozen=True, eq=False)
class LaidOut:
    """What the engine times of a plan: the problem and a placement, or those that the plan is expanded to."""

    problem: Problem
    placement: Ints  # (units,) device
    order: OrderLike  # that of the plan, of the ops of the problem
    expansion: Expansion | None = None  # of a plan that is no op placement

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> LaidOut:
        """Raises InputError if it is not a plan for this problem."""
        if plan.is_placement:
            plan.check(problem)
            return cls(problem, plan.per_unit(problem), plan.order)
        expansion = expand(problem, plan)
        return cls(expansion.problem, expansion.placement, expansion.order, expansion)

    def simulator(self) -> Simulator:
        """What times it."""
        return Simulator(self.problem, order=self.order)


def simulate(problem: Problem, plan: Plan) -> Timeline:
    """Time a plan under its own order, or else the problem's rule; what is no op placement is expanded first.

    The timeline is then one of the expanded graph. Raises InputError if it is not a plan for this problem.
    """
    laid = LaidOut.of(problem, plan)
    timeline = laid.simulator().timeline(laid.placement)
    return replace(timeline, expansion=laid.expansion, order=order_name(problem, plan.order))
