"""Cheap placers and the released policy under every rule: step times, robustness, and what ties decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from envs.costs.costs import AUTO, timed
from envs.orders import GIVEN
from envs.plan import Plan
from envs.robustness import DRAWS, NOISE, noisy_steps
from envs.simulation.simulator import Simulator
from evaluation.commands.load_placer import load_placer
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.problems import tied
from evaluation.studies.released.parts import BEST, FEW, GREEDY
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.load import load_cluster
from graphs.problem import DEFAULT_ORDER, FIFO, Problem
from placers.contract.placer import as_result

RULES = (FIFO, "program", DEFAULT_ORDER)
POLICY = (GREEDY, BEST)
PLACERS = (*POLICY, *CHEAP)
TIES, SHAKEN = 1e-6, 1e-3  # noise that breaks ties at random and changes no times, and noise that changes them a little
FEW_DRAWS = 16

Given = str | tuple[float, ...]  # an order


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds of a step of one plan under one order."""

    seconds: float
    fits: bool
    median: float  # under noise of NOISE, over DRAWS
    worst: float
    free: float  # without noise, on links that do not queue
    ties: tuple[float, ...]  # (FEW_DRAWS,) under noise of TIES
    shaken: tuple[float, ...]  # (FEW_DRAWS,) under noise of SHAKEN


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A placer's plan under one order."""

    placer: str
    made: str  # the rule of the problem that the placer was given
    order: str  # the rule under which the plan is run, or GIVEN for the order that the placer handed on
    times: Times


class Ordered(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All placers on a problem. What is made under `fifo` is run under every rule, other plans under their own rule."""

    problem: str
    ops: int
    units: int
    timings: tuple[Timing, ...]
    failures: tuple[str, ...] = ()


@dataclass
class Clock:
    """Times plans of one problem; the same placement under the same order once."""

    problem: Problem
    _simulators: dict[Given, tuple[Simulator, Simulator]] = field(default_factory=dict)
    _known: dict[tuple[bytes, Given], Times] = field(default_factory=dict)

    def times(self, plan: Plan, order: Given) -> Times:
        """Of a plan under an order, whatever its own is."""
        placement = plan.per_unit(self.problem)
        key = placement.tobytes(), order
        if key not in self._known:
            simulator, free = self._queued_and_free(order)
            outcome = simulator.run(placement)
            noisy = noisy_steps(simulator, placement, noise=NOISE, draws=DRAWS)
            ties, shaken = (
                tuple(noisy_steps(simulator, placement, noise=noise, draws=FEW_DRAWS).tolist())
                for noise in (TIES, SHAKEN)
            )
            self._known[key] = Times(
                seconds=outcome.step_seconds, fits=outcome.fits, median=float(np.median(noisy)),
                worst=float(noisy.max()), free=float(free.seconds(placement[None])[0]), ties=ties, shaken=shaken,
            )  # fmt: skip
        return self._known[key]

    def _queued_and_free(self, order: Given) -> tuple[Simulator, Simulator]:
        """Simulators under an order: of the problem, and of the same on links that do not queue."""
        if order not in self._simulators:
            simulator = Simulator(self.problem, order=order)
            free = replace(self.problem, cluster=self.problem.cluster.with_free_links())
            self._simulators[order] = simulator, Simulator(free, order=order)
        return self._simulators[order]


def under_rules(graph: str, cluster: str, groups: int) -> Ordered:
    """All placers on a problem, by the specs of its graph and cluster."""
    return ordered(Problem(tied(graph, groups), load_cluster(cluster)))


def ordered(problem: Problem) -> Ordered:
    """All placers on a problem, given with each of the rules."""
    problem = timed(problem, AUTO)
    clock, failures = Clock(problem), []
    timings: list[Timing] = []
    for made in RULES:
        for spec in PLACERS:
            try:
                timings += _timings(clock, spec, made)
            except (InputError, DoesNotFitError) as error:
                failures.append(f"{spec}: {error}")
    return Ordered(
        problem=problem.name, ops=len(problem.graph), units=problem.graph.num_units, timings=tuple(timings),
        failures=tuple(failures),
    )  # fmt: skip


def _timings(clock: Clock, spec: str, made: str) -> Iterator[Timing]:
    """The plan that a placer makes for a problem with a rule, under the orders in which it is wanted."""
    placer = load_placer(spec)
    found = placer.place(replace(clock.problem, order=made), seed=0, budget=FEW if spec == BEST else 1)
    plan = as_result(found, placer.name, 0).plan
    orders: dict[str, Given] = {rule: rule for rule in (RULES if made == FIFO else (made,))}
    if plan.order:
        orders[GIVEN] = plan.order
    for name, order in orders.items():
        yield Timing(placer=spec, made=made, order=name, times=clock.times(plan, order))
