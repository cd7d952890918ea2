"""What cheap placers find, and the processor time that they and a simulation take, problem by problem."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from envs.objectives import Evaluator, evaluator_of
from envs.plan import Plan
from envs.simulation.simulator import Outcome, Simulator
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import Problems, captured, suite_problems, tied
from evaluation.studies.released.parts import GROUPS, profile_problems
from graphs.foundation import by_name
from graphs.foundation.errors import DoesNotFitError, InputError
from graphs.load import load_cluster
from graphs.problem import STEP_TIME, Problem
from graphs.splits import split
from placers.contract.placer import Placer, as_result
from placers.search.starts import own_simulations

CANDIDATES = (
    "heft", "peft", "m_etf", "m_sct", "m_topo", "human_expert", "single_device", "round_robin",
    "gpipe:micro_batches=1", "pipedream", "max_load_dp:ideals=0", "max_load_dp:ideals=1000", "metis", "metis:seeds=24",
    "metis:seeds=8", "metis:default=true", "kahip", "kahip:seeds=4", "kahip:seeds=1",
)  # fmt: skip
LOADS = "max-load"  # problems of that objective; those of all other kinds are of step times
PROFILES = "profiles"
SUITE = "gdp12"  # judges the order of the starts; only seconds are taken from it, because it has the largest graphs
GRAINS = {"64": GROUPS, "256": 256, "ops": None, LOADS: GROUPS}  # op groups; without any, units are as captured
KINDS = (*GRAINS, PROFILES, SUITE)
GRAPHS = 2  # test graphs of each family
CLUSTERS = (
    "p100:devices=2", "p100:devices=4", "p100:devices=8", "v100_servers:servers=2,devices=4,gbps=25",
    "p2_8xlarge:links=placeto,devices=4", "cpu_gpu:gpus=2",
)  # fmt: skip
BUDGET = 1000  # simulations of the search for which the placers are measured

Value = TypeVar("Value")


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A placer on a problem."""

    placer: str
    cpu_seconds: float  # the least of several runs
    seconds: float  # what the problem minimises
    fits: bool
    error: str = ""  # why there is no placement


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All candidates on a problem."""

    problem: str
    kind: str
    ops: int
    units: int
    devices: int
    simulation_seconds: float  # of the processor, mean over what the placers found; the least of several runs
    trials: tuple[Trial, ...]


def jobs(out: Path, kinds: Iterable[str], data: Path | None, repeats: int) -> list[SavedJob]:
    """A job per problem."""
    return [
        SavedJob(out / PIECES / f"{kind}-{number:02d}.json", partial(measured, build, kind, repeats))
        for kind in kinds
        for number, build in enumerate(_problems(kind, data).values())
    ]


def measured(build: Callable[[], Problem], kind: str, repeats: int) -> Measured:
    """Run every candidate several times, and simulate what they found."""
    problem = build()
    evaluator = evaluator_of(problem)
    trials, placements = [], []
    for spec in CANDIDATES:
        placer: Placer = by_name.build("placers", spec)
        try:
            plan, seconds = _least(partial(_plan, placer, problem), repeats)
        except (InputError, DoesNotFitError) as error:
            trials.append(Trial(placer.name, 0.0, 0.0, fits=False, error=str(error)))
            continue
        outcome = _outcome(evaluator, plan)
        trials.append(Trial(placer.name, seconds, outcome.step_seconds, outcome.fits))
        placements.append(plan.per_unit(problem))
    together = np.array(placements)
    return Measured(
        problem=problem.name, kind=kind, ops=len(problem.graph), units=problem.graph.num_units,
        devices=len(problem.cluster), trials=tuple(trials),
        simulation_seconds=_least(lambda: evaluator.seconds(together), repeats + 1)[1] / len(together),
    )  # fmt: skip


def _plan(placer: Placer, problem: Problem) -> Plan:
    """What the placer finds at the beginning of a search."""
    return as_result(placer.place(problem, seed=0, budget=own_simulations(BUDGET)), placer.name, 0).plan


def _outcome(evaluator: Evaluator, plan: Plan) -> Outcome:
    """What a plan costs under the problem's rule or, if that is better, under its own order, as a search begins."""
    problem, placement = evaluator.problem, plan.per_unit(evaluator.problem)
    outcomes = [evaluator.run_batch(placement[None]).of(0)]
    if plan.order and problem.objective == STEP_TIME:
        outcomes.append(Simulator(problem, order=plan.order).run(placement))
    return min(outcomes, key=lambda outcome: (not outcome.fits, outcome.step_seconds))


def _problems(kind: str, data: Path | None) -> Problems:
    """The problems of a kind; profiles only if a folder of them is given."""
    if kind == SUITE:
        return suite_problems(SUITE, GROUPS)
    if kind == PROFILES:
        return profile_problems(data) if data else {}
    tests = [split([family], "test") for family in by_name.built_in("graphs.families")]
    graphs = [specs[which] for which in range(GRAPHS) for specs in tests]
    shift = list(GRAINS).index(kind)  # no graph is on the same cluster in two grains
    objective = "max-load" if kind == LOADS else STEP_TIME
    found = {}
    for index, graph in enumerate(graphs):
        cluster = CLUSTERS[(index + 2 * shift) % len(CLUSTERS)]
        found[f"{graph}@{cluster}"] = partial(_problem, graph, cluster, GRAINS[kind], objective)
    return found


def _problem(graph: str, cluster: str, groups: int | None, objective: str) -> Problem:
    ops = tied(graph, groups) if groups else captured(graph)
    return Problem(ops, load_cluster(cluster), objective=objective)


def _least(work: Callable[[], Value], repeats: int) -> tuple[Value, float]:
    """What it returns, and the least processor seconds that it took."""
    least = np.inf
    for _ in range(repeats):
        started = time.process_time()
        value = work()
        least = min(least, time.process_time() - started)
    return value, least
