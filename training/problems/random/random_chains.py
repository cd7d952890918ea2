"""Random chains: training steps of models that are one layer after another, on random clusters of servers.

Models differ in how work, weights and outputs change along the chain; all else is drawn between wide bounds, so that a
policy meets clusters on which one device is best, replicas, pipelines, or both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, islice

import numpy as np

from envs.costs.costs import timed
from graphs.capture.training_step import training_step
from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime
from training.problems.random.random_cluster import log_uniform, random_cluster, seconds_per_byte, typical_speeds
from training.problems.runtimes import drawn_runtime

LAYERS = 6, 64  # between which everything is drawn here, its logarithm uniformly; all of it is ours
DEVICES = 2, 16
SAMPLES = (16, 32, 64, 96, 128, 256)  # of a step
LAYER_SECONDS = 2e-4, 5e-2  # mean of the forward pass of a layer, whole batch, on a typical device
TRANSFERS = 0.003, 2.0  # mean seconds to send an output of the whole batch over those of a layer's forward pass
INNER = 1.0, 24.0  # bytes that are kept inside a layer over those of its output
SUMMING = 0.01, 10.0  # seconds to send all weights over those of the whole forward pass
LAUNCHES = 1e-4, 3e-2  # seconds of a launch over those of a layer
ROOM = 0.4, 6.0  # memory of all devices together over all weights, with their state, and outputs
UNEQUAL = 0.4  # of the clusters, with devices of unlike speed or memory
LOOSE = 0.4  # of the problems, with memory for everything on each device
LABELLED = 7  # the seed of the chains with labels


def _blocks(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Equal layers between a table that is looked up and a wide head, as of language models."""
    work, weights, sent = np.ones(count), np.ones(count), np.ones(count)
    if rng.random() < 0.5:
        work[1::2], weights[1::2] = 2.0, 2.0
    work[0], work[-1] = 0.05, log_uniform(rng, 0.2, 4.0)
    weights[0] = weights[-1] = log_uniform(rng, 0.5, 8.0)
    return work, weights, sent


def _pyramid(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Outputs become smaller from level to level, and weights larger, as in networks that look at images."""
    level = np.floor(np.linspace(0, int(rng.integers(3, 6)) - 1e-9, count))
    return log_normal(rng, count, 0.3), 4.0**level, 2.0**-level * log_normal(rng, count, 0.2)


def _heavy_end(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """A pyramid whose last layers have nearly all weights and hardly any work."""
    work, weights, sent = _pyramid(rng, count)
    end = max(count // 8, 2)
    work[-end:] *= 0.1
    weights[-end:] = weights.sum() * log_uniform(rng, 0.5, 8.0) / end
    sent[-end:] *= 0.05
    return work, weights, sent


def _recurrent(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Few heavy layers among light ones."""
    heavy = rng.random(count) < 0.3
    heavy[int(rng.integers(count))] = True
    return np.where(heavy, 1.0, 0.02), np.where(heavy, 1.0, 0.05), log_normal(rng, count, 0.2)


def _mixed(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Nothing is like anything else."""
    return log_normal(rng, count, 1.0), log_normal(rng, count, 1.5), log_normal(rng, count, 1.0)


CHAINS = {
    "blocks": _blocks, "heavy_end": _heavy_end, "mixed": _mixed, "pyramid": _pyramid, "recurrent": _recurrent,
}  # fmt: skip


def check_chains(kinds: Iterable[str]) -> None:
    """Raise InputError for the name of no kind of chains."""
    for kind in kinds:
        if kind not in CHAINS:
            raise InputError(by_name.unknown("kind of chain", kind, CHAINS))


def labelled_chains(
    kinds: Iterable[str], number: int, *, optimizer: str = "adam", runtimes: Sequence[Runtime] = (IDEAL,)
) -> list[Problem]:
    """The first chains of some kinds among those with labels, which are the same for every seed of training."""
    wanted = list(kinds)
    generators = (np.random.default_rng((LABELLED, each)) for each in count())
    drawn = ((rng, str(rng.choice(list(CHAINS)))) for rng in generators)
    chosen = islice(((rng, kind) for rng, kind in drawn if kind in wanted), number)
    return [random_chain(rng, kind, optimizer=optimizer, runtimes=runtimes) for rng, kind in chosen]


def random_chain(
    rng: np.random.Generator, kind: str, *, optimizer: str = "adam", runtimes: Sequence[Runtime] = (IDEAL,)
) -> Problem:
    """A training step of a kind of chain on a cluster, timed. Raises InputError for a kind that there is not."""
    check_chains([kind])
    seconds = log_uniform(rng, *LAYER_SECONDS)
    is_unequal, is_loose = rng.random(2) < (UNEQUAL, LOOSE)
    cluster = random_cluster(rng, round(log_uniform(rng, *DEVICES)), seconds, unequal=bool(is_unequal))
    launch = seconds * log_uniform(rng, *LAUNCHES)
    cluster = replace(
        cluster, devices=tuple(replace(each, launch_seconds=launch, memory_bytes=np.inf) for each in cluster.devices)
    )
    graph = _training_graph(rng, kind, cluster, seconds)
    problem = timed(Problem(graph, cluster, optimizer))
    cluster = _with_memory(rng, problem, loose=bool(is_loose), unequal=bool(is_unequal))
    return replace(problem, cluster=cluster, runtime=drawn_runtime(runtimes, cluster, rng))


def log_normal(rng: np.random.Generator, count: int, spread: float) -> Floats:
    """(count,) numbers around 1, whose logarithms have this standard deviation."""
    return np.exp(rng.normal(0.0, spread, count))


def _training_graph(rng: np.random.Generator, kind: str, cluster: Cluster, seconds: float) -> OpGraph:
    """Two products with weights for each layer, and what is between them is kept; their backward passes and updates."""
    count, samples = round(log_uniform(rng, *LAYERS)), int(rng.choice(SAMPLES))
    work, weights, sent = CHAINS[kind](rng, count)
    flops_per_second, bytes_per_second = typical_speeds(cluster)
    per_byte = seconds_per_byte(cluster)
    compute = work / work.mean() * seconds
    outputs = (
        sent / sent.mean() * min(log_uniform(rng, *TRANSFERS) * seconds / per_byte, seconds * bytes_per_second / 3)
    )  # a layer reads and writes them within its time
    parameters = (
        weights
        / weights.sum()
        * min(log_uniform(rng, *SUMMING) * seconds * count / per_byte, 0.5 * seconds * count * bytes_per_second)
    )
    inner = outputs * log_uniform(rng, *INNER)
    layers, chain = np.arange(count), np.arange(2 * count - 1)
    forward = OpGraph(
        kind, tuple(f"layer{each}.{part}" for each in layers for part in ("inner", "outer")),
        ("aten.addmm", "aten.linear") * count, flops=np.repeat(compute, 2) * flops_per_second / 2,
        bytes_accessed=np.repeat(parameters, 2) / 2 + outputs.repeat(2), output_bytes=_in_turn(inner, outputs),
        edges=np.column_stack([chain, chain + 1]), weights=parameters.repeat(2) / 2,
        weight_uses=np.column_stack([np.arange(2 * count)] * 2), group=layers.repeat(2),
        batch_law=BatchLaw(samples),
    )  # fmt: skip
    return training_step(forward)


def _in_turn(first: Floats, second: Floats) -> Floats:
    return np.column_stack([first, second]).ravel()


def _with_memory(rng: np.random.Generator, problem: Problem, *, loose: bool, unequal: bool) -> Cluster:
    """The cluster with memory for a step on one device, or for a share of it on each."""
    graph, cluster = problem.graph, problem.cluster
    count = len(cluster)
    need = float(problem.weight_state_bytes.sum() + graph.output_bytes.sum())
    each = need if loose else need * log_uniform(rng, *ROOM) / count
    share = log_normal(rng, count, 0.3) if unequal and not loose else np.ones(count)
    devices = [
        replace(device, memory_bytes=each * own)
        for device, own in zip(cluster.devices, (share / share.mean()).tolist(), strict=True)
    ]
    return replace(cluster, devices=tuple(devices))
