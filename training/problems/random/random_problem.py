"""Random problems: a graph of some kind on a random cluster, both drawn from one seed."""

from collections.abc import Sequence

import numpy as np

from envs.costs.costs import timed
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime
from training.problems.random.random_cluster import log_uniform, random_cluster
from training.problems.random.random_graph import GraphOrder, random_graph
from training.problems.random.random_memory import with_memory
from training.problems.random.settings import World
from training.problems.randomised import with_other_times

OP_SECONDS = 1e-5, 1e-2  # mean of the forward ops of a problem
APART = 1 << 33  # next to a seed, tells the random numbers of problems to evaluate on from those of training


def random_problem(
    settings: World, kind: str, rng: np.random.Generator, *, optimizer: str = "adam", runtime: Runtime = IDEAL
) -> Problem:
    """A problem of a kind, all else drawn as the settings say."""
    training, grouped, equal, measured, unequal, tight, nothing = (
        rng.random(7)
        < (
            settings.training, settings.grouped, settings.equal_times, settings.measured, settings.unequal,
            settings.tight, settings.nothing_sent,
        )
    ).tolist()  # fmt: skip
    seconds = log_uniform(rng, *OP_SECONDS)
    cluster = random_cluster(rng, round(log_uniform(rng, *settings.devices)), seconds, unequal=unequal)
    asked = GraphOrder(
        kind=kind, units=round(log_uniform(rng, *settings.units)), op_seconds=seconds,
        transfers=0.0 if nothing else log_uniform(rng, *settings.transfers),
        training=training, grouped=grouped, equal_times=equal,
    )  # fmt: skip
    problem = timed(Problem(random_graph(rng, asked, cluster), cluster, optimizer, runtime=runtime))
    if measured:
        problem = with_other_times(problem, rng)
    return with_memory(rng, problem, tight=tight)


def world_problems(
    kinds: Sequence[str], *, seed: int, count: int, settings: World | None = None, runtime: Runtime = IDEAL,
    optimizer: str = "adam",
) -> list[Problem]:  # fmt: skip
    """Random problems to evaluate on, kinds taking turns: the same for the same seed, none of them trained on."""
    return [
        random_problem(
            settings or World(), kinds[i % len(kinds)], np.random.default_rng((seed, APART, i)), optimizer=optimizer,
            runtime=runtime,
        )
        for i in range(count)
    ]  # fmt: skip
