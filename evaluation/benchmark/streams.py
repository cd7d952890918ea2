"""Streams of changes: a model runs, something changes, it is placed again, something else changes, and so on.

Half of the streams are of captured models, the test graphs of ten families, and half of random graphs of the kinds that
the released policy was not trained on; all on 4 to 16 devices, run as `placelab place` has it by default. What changes
is drawn: a device that is in use leaves or becomes slower, one comes back or recovers, the batch is another, kinds of
ops take longer or shorter, a captured model is trained in another precision. What runs when the next change comes is
what annealing finds for the one before, in the same simulations whatever the machine: so a seed says all of a stream.
Models that hardly gain by several devices are left out, as there is nothing to be placed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import log

import numpy as np

from envs.costs.costs import costs_of, timed
from envs.expansion.shares import shared
from envs.objectives import evaluator_of
from envs.objectives.replacement import replacing
from envs.replacement.running import LEFT, STEPS, Running
from graphs.cluster import Cluster
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.files.splits import split
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem
from graphs.runtime import default_runtime
from placers.annealing import Annealing
from training.problems.random.random_cluster import log_uniform
from training.problems.random.random_problem import random_problem
from training.problems.random.settings import World

STREAMS, CHANGES = 20, 6  # streams, and changes of each
FAMILIES = ("rnnlm", "inception_v3", "transformer", "gnmt", "resnet", "bert", "nmt", "vit", "vgg", "llama")
CLUSTERS = (
    "p100:devices=4", "v100:devices=4", "dgx_a100:servers=1,devices=8", "p100:devices=8",
    "v100_servers:servers=2,devices=4,gbps=25", "dgx_a100:servers=2,devices=8",
)  # fmt: skip
KINDS = ("fan", "series_parallel", "elimination")
WORLD = World(units=(64, 256), devices=(4, 16), tight=0.0)
GROUPS = 128  # of ops of captured models
HALF = "bf16-true"  # the other precision
SIMULATIONS = 2000  # of the search for what runs
TRIES = 40  # to draw a change after which a plan fits, or a problem that gains by several devices
PAYS = 0.8  # of the seconds on the best device alone, that a step on several takes at most
SLOWER = 1.5, 4.0  # times
BATCH = 0.5, 2.0  # times the batch that it was captured with
COSTS = 1 / 1.5, 1.5  # times what a kind of ops took


Way = Callable[["_Conditions", Problem, Bools, np.random.Generator], "tuple[str, _Conditions]"]


@dataclass(frozen=True, eq=False)
class Change:
    """What changed, and the problem of placing again what runs, with the objective `replacement`."""

    what: str
    problem: Problem


@dataclass(frozen=True, eq=False)
class _Conditions:
    """How things stand in a stream, by the devices of the cluster at its begin."""

    present: Bools  # (devices,)
    slowness: Floats  # (devices,) times what ops took at the begin
    batch: float  # times the batch at the begin
    costs: Floats  # (ops,) times what each op took
    half: bool  # whether in the other precision

    def problem(self, precisions: tuple[Problem, ...]) -> Problem:
        """The problem, from those in either precision."""
        base = shared(precisions[self.half], self.batch)
        cluster = with_devices(base.cluster, np.flatnonzero(self.present))
        seconds = costs_of(base).op_seconds * self.costs[:, None] * self.slowness
        return replace(base, cluster=cluster, op_seconds=np.ascontiguousarray(seconds[:, self.present]))


def with_devices(cluster: Cluster, devices: Ints) -> Cluster:
    """The cluster with some of its devices alone, (devices,), and the links between them."""
    pairs = np.ix_(devices, devices)
    return replace(
        cluster,
        devices=tuple(cluster.devices[device] for device in devices.tolist()),
        latency=cluster.latency[pairs],
        bandwidth=cluster.bandwidth[pairs],
        channel=cluster.channel[pairs],
    )


def streams(
    count: int = STREAMS, *, seed: int = 0, changes: int = CHANGES, done: int = 0
) -> Iterator[tuple[Change, ...]]:
    """Streams of some changes each, those of captured models and of random graphs in turn; the same for equal seeds.

    The first `done` streams are left out. If no model drawn of a family gains by several devices, the next family
    takes its place.
    """
    for number in range(done, count):
        rng = np.random.default_rng((seed, number))
        kinds, turn = KINDS if number % 2 else FAMILIES, number // 2
        found = (_first(kinds[(turn + later) % len(kinds)], rng) for later in range(len(kinds)))
        first = next((each for each in found if each is not None), None)
        if first is None:
            raise InputError(f"none of {', '.join(kinds)} gains by several devices; take others")
        yield tuple(changes_of(*first, rng, changes))


def changes_of(
    precisions: tuple[Problem, ...], running: Ints, rng: np.random.Generator, count: int
) -> Iterator[Change]:
    """Changes, one after another, of a problem in one precision or in two, with the same ops in units.

    `running` is (units,) what runs at first. Raises InputError if after none of the changes that are drawn a plan fits.
    """
    first = precisions[0]
    devices, ops = len(first.cluster), len(first.graph)
    now = _Conditions(np.ones(devices, np.bool_), np.ones(devices), 1.0, np.ones(ops), half=False)
    for _ in range(count):
        used = np.isin(np.arange(devices), running)
        for _ in range(TRIES):
            what, then = _changed(now, first, used, rng, len(precisions) > 1)
            number = np.where(then.present, np.cumsum(then.present) - 1, LEFT)
            problem = replacing(then.problem(precisions), Running(number[running], STEPS))
            found = _placed(problem)
            if evaluator_of(problem).run_batch(found[None]).fits[0]:
                break
        else:
            raise InputError(f"{first.name}: no plan fits after any of {TRIES} changes; give its devices more memory")
        yield Change(what, problem)
        now, running = then, np.flatnonzero(then.present)[found]


def _placed(problem: Problem) -> Ints:
    """(units,) what runs next."""
    return Annealing().place(problem, budget=SIMULATIONS).plan.per_unit(problem)


def _first(kind: str, rng: np.random.Generator) -> tuple[tuple[Problem, ...], Ints] | None:
    """A problem of a family or a kind of random graphs that gains by several devices, and what runs at first.

    None if none of those that are drawn does.
    """
    for _ in range(TRIES):
        found = _captured(kind, rng) if kind in FAMILIES else _random(kind, rng)
        placement, evaluator = _placed(found[0]), evaluator_of(found[0])
        alone = np.tile(np.arange(len(found[0].cluster))[:, None], (1, len(placement)))
        if evaluator.seconds(placement[None])[0] <= PAYS * evaluator.seconds(alone).min():
            return found, placement
    return None


def _changed(
    now: _Conditions, first: Problem, used: Bools, rng: np.random.Generator, has_half: bool
) -> tuple[str, _Conditions]:
    """What changes next, and how things then stand; of (devices,) those that are `used` leave or slow down."""
    ways: list[Way] = [_batch, _costs]
    ways += [_leaves] * 2 if now.present.sum() > max(len(now.present) // 2, 2) else []
    ways += [] if now.present.all() else [_comes]
    ways += [_slower] * 2 + ([_recovers] if (now.slowness[now.present] > 1).any() else [])
    ways += [_precision] if has_half else []
    return ways[int(rng.integers(len(ways)))](now, first, used, rng)


def _one_of(which: Bools, rng: np.random.Generator) -> int:
    return int(rng.choice(np.flatnonzero(which)))


def _with(values: Floats, device: int, value: float) -> Floats:
    changed = values.copy()
    changed[device] = value
    return changed


def _leaves(now: _Conditions, first: Problem, used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    device = _one_of(used, rng)
    present = now.present.copy()
    present[device] = False
    return f"{first.cluster.devices[device].name} leaves", replace(now, present=present)


def _comes(now: _Conditions, first: Problem, _used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    device = _one_of(~now.present, rng)
    present = now.present.copy()
    present[device] = True
    back = replace(now, present=present, slowness=_with(now.slowness, device, 1.0))
    return f"{first.cluster.devices[device].name} comes back", back


def _slower(now: _Conditions, first: Problem, used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    device, times = _one_of(used, rng), log_uniform(rng, *SLOWER)
    slower = replace(now, slowness=_with(now.slowness, device, times))
    return f"{first.cluster.devices[device].name} takes {times:.1f} times as long", slower


def _recovers(now: _Conditions, first: Problem, _used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    device = _one_of(now.present & (now.slowness > 1), rng)
    return f"{first.cluster.devices[device].name} recovers", replace(now, slowness=_with(now.slowness, device, 1.0))


def _batch(now: _Conditions, _first: Problem, _used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    times = log_uniform(rng, *BATCH)
    return f"{times:.2f} times the first batch", replace(now, batch=times)


def _costs(now: _Conditions, first: Problem, _used: Bools, rng: np.random.Generator) -> tuple[str, _Conditions]:
    kinds, kind = np.unique(first.graph.kinds, return_inverse=True)
    factors = np.exp(rng.uniform(log(COSTS[0]), log(COSTS[1]), len(kinds)))
    return "other costs of kinds of ops", replace(now, costs=factors[kind])


def _precision(now: _Conditions, _first: Problem, _used: Bools, _rng: np.random.Generator) -> tuple[str, _Conditions]:
    return "the other precision", replace(now, half=not now.half)


def _captured(family: str, rng: np.random.Generator) -> tuple[Problem, ...]:
    """A test graph of a family on a cluster, both drawn, and the same in the other precision if its ops are."""
    spec, cluster = str(rng.choice(split([family], "test"))), load_cluster(str(rng.choice(CLUSTERS)))
    graph, half = load_graph(spec, groups=GROUPS), load_graph(graph_source(spec).in_precision(HALF))
    found = [graph]
    if graph.names == half.names and np.array_equal(graph.edges, half.edges):
        found.append(replace(half, group=graph.group))
    runtime = default_runtime(graph, cluster)
    return tuple(timed(Problem(each, cluster, runtime=runtime)) for each in found)


def _random(kind: str, rng: np.random.Generator) -> tuple[Problem, ...]:
    """A random graph of a kind on random devices with room for what grows."""
    problem = random_problem(WORLD, kind, rng)
    return (replace(problem, runtime=default_runtime(problem.graph, problem.cluster)),)
