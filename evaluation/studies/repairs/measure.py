"""Searches of one problem: `neural_lns`, and annealing from the same policy with as many simulations and as long."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import problems_of
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.contract.placer import Placer
from placers.neural_lns import NeuralLns

UNLIMITED = 10**7  # simulations of annealing that ends by its seconds
WARMING = 1.0  # seconds


class Searched(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the searches found; misfits count as infinitely slow."""

    problem: str
    units: int
    policy: str
    moves: float
    budget: int
    seed: int
    repaired: float  # step seconds
    repaired_took: float  # seconds
    same_simulations: float  # step seconds of annealing with as many simulations
    same_simulations_took: float  # seconds
    same_seconds: float  # step seconds of annealing that took as long
    same_seconds_simulations: int


def jobs(
    out: Path, pairs: Sequence[tuple[str, str]], groups: Sequence[int], policy: str, moves: float, budget: int,
    seeds: int,
) -> list[SavedJob]:  # fmt: skip
    """A job per problem and seed: graphs and clusters by their specs, in some numbers of op groups."""
    named = f"{'-'.join(policy.split('/'))}-{moves:g}-{budget}"
    return [
        SavedJob(
            out / PIECES / f"{number:02d}-{count}-{named}-{seed}.json",
            partial(searched, f"{name} in {count}", build, policy, moves, budget, seed),
        )
        for count in groups
        for number, (name, build) in enumerate(problems_of(pairs, count).items())
        for seed in range(seeds)
    ]


def searched(
    name: str, build: Callable[[], Problem], policy: str, moves: float, budget: int, seed: int
) -> Searched:  # fmt: skip
    """All three searches; each also makes its own starts, which are the same."""
    problem = build()
    # whatever is made once: a search without a limit of simulations also begins with the placers that take longest
    _ = NeuralLns(policy=policy, moves=moves).place(problem, seed=seed, budget=64)
    _ = Annealing(policy=policy, seconds=WARMING).place(problem, seed=seed, budget=UNLIMITED)
    repaired, took, _ = _searched(NeuralLns(policy=policy, moves=moves), problem, budget, seed)
    same, same_took, _ = _searched(Annealing(policy=policy), problem, budget, seed)
    as_long, _, simulations = _searched(Annealing(policy=policy, seconds=took), problem, UNLIMITED, seed)
    return Searched(
        problem=name, units=len(problem.units), policy=policy, moves=moves, budget=budget, seed=seed,
        repaired=repaired, repaired_took=took, same_simulations=same, same_simulations_took=same_took,
        same_seconds=as_long, same_seconds_simulations=simulations,
    )  # fmt: skip


def _searched(placer: Placer, problem: Problem, budget: int, seed: int) -> tuple[float, float, int]:
    """Step seconds of what a search finds, how long it took, and its simulations."""
    begin = time.monotonic()
    result = placer.place(problem, seed=seed, budget=budget)
    took = time.monotonic() - begin
    timeline = simulate(problem, result.plan)
    return (timeline.step_seconds if timeline.fits else 1e30), took, result.simulations
