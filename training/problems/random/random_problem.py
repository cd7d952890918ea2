"""Random problems: a graph of some kind on a random cluster, both drawn from one seed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from envs.costs.costs import timed
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime
from training.problems.chance import happens
from training.problems.random.random_cluster import log_uniform, random_cluster
from training.problems.random.random_graph import GraphOrder, random_graph
from training.problems.random.random_memory import with_memory
from training.problems.random.settings import World
from training.problems.randomised import with_other_times
from training.problems.runtimes import drawn_runtime, with_host_seconds
from training.problems.scarce import with_scarce_memory

OP_SECONDS = 1e-5, 1e-2  # mean of the forward ops of a problem
APART = 1 << 33  # next to a seed, tells the random numbers of problems to evaluate on from those of training


def random_problem(
    settings: World, kind: str, rng: np.random.Generator, *, optimizer: str = "adam",
    runtimes: Sequence[Runtime] = (IDEAL,),
) -> Problem:  # fmt: skip
    """A problem of a kind, all else drawn as the settings say, and how it is run among some runtimes."""
    training, grouped, equal, measured, unequal, tight, nothing = (
        rng.random(7)
        < (
            settings.training, settings.grouped, settings.equal_times, settings.measured, settings.unequal,
            settings.tight, settings.nothing_sent,
        )
    ).tolist()  # fmt: skip
    seconds = log_uniform(rng, *OP_SECONDS)
    pairs = settings.pairs[0] if settings.pairs[0] == settings.pairs[1] else log_uniform(rng, *settings.pairs)
    (fewest, most), (few, many) = settings.units, settings.devices
    cluster = random_cluster(rng, round(log_uniform(rng, few, min(many, pairs / fewest))), seconds, unequal=unequal)
    units = log_uniform(rng, fewest, min(most, max(pairs / len(cluster), fewest)))
    asked = GraphOrder(
        kind=kind, units=round(units), op_seconds=seconds,
        transfers=0.0 if nothing else log_uniform(rng, *settings.transfers),
        training=training, grouped=grouped, equal_times=equal,
    )  # fmt: skip
    problem = timed(Problem(random_graph(rng, asked, cluster), cluster, optimizer))
    if measured:
        problem = with_other_times(problem, rng)
    problem = replace(problem, runtime=drawn_runtime(runtimes, cluster, rng))
    problem = with_host_seconds(problem, seconds, settings.host, rng)
    if happens(settings.scarce, rng):
        return with_scarce_memory(problem, rng)
    return with_memory(rng, problem, tight=tight)


def world_problems(
    kinds: Sequence[str], *, seed: int, count: int, settings: World | None = None,
    runtimes: Sequence[Runtime] = (IDEAL,), optimizer: str = "adam",
) -> list[Problem]:  # fmt: skip
    """Random problems to evaluate on, kinds taking turns: the same for the same seed, none of them trained on."""
    return [
        random_problem(
            settings or World(), kinds[i % len(kinds)], np.random.default_rng((seed, APART, i)), optimizer=optimizer,
            runtimes=runtimes,
        )
        for i in range(count)
    ]  # fmt: skip
