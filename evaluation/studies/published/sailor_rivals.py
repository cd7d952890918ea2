"""What Sailor's rivals can say: the best of all their pipelines, found by trying them in Sailor's own simulator.

Sailor comes with nine planners, itself among them, and with none of their answers. So this is stricter than any of
them: all pipelines whose stages have as many replicas each, and equally many layers or as many as balance them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product

from evaluation.studies.published.sailor_simulator import (
    FLOAT,
    LAYERS,
    OUTPUTS,
    Group,
    Pipeline,
    Pool,
    SailorSimulator,
    Stage,
    held_bytes,
)

TP, SAMPLES = (1, 2, 4), (1, 2, 4, 8)  # that were measured on all
MOST_STAGES, MOST_MIXED = 8, 2  # of a kind of GPUs, and with replicas of several kinds
MOST_UNLIKE = 3  # stages, any of which may be tensor-parallel in another degree
HALVINGS = 20  # of the interval in which the slowest stage's seconds are

Gpus = Mapping[Pool, int]
Kind = tuple[Group, ...]  # of a stage


def best_of_all(simulator: SailorSimulator, gpus: Gpus) -> Pipeline:
    """The fastest pipeline by Sailor's simulator of those that its rivals can say."""
    best, least = None, math.inf
    for samples in SAMPLES:
        found = ((kinds, _replicas_at_most(kinds, gpus)) for kinds in _arrangements(simulator, gpus, samples))
        bounds = [(_least_seconds(simulator, kinds, samples, most), kinds) for kinds, most in found if most]
        for bound, kinds in sorted(bounds):
            if bound >= least:
                break
            most = _most_replicas(kinds, gpus)
            if not most or _least_seconds(simulator, kinds, samples, most) >= least:
                continue
            for pipeline in _pipelines(simulator, kinds, samples, most):
                if (seconds := simulator.seconds(pipeline)) < least:
                    best, least = pipeline, seconds
    assert best is not None
    return best


def counts_of_replicas(simulator: SailorSimulator, samples: int, most: int) -> list[int]:
    """Of each number of micro-batches, the fewest replicas: more would add up gradients longer for nothing."""
    fewest = {math.ceil(simulator.batch / (samples * replicas)): replicas for replicas in range(most, 0, -1)}
    return sorted(fewest.values())


def groups_of(simulator: SailorSimulator, gpus: Gpus, samples: int) -> list[list[Group]]:
    """Of each pool, those of the degrees of tensor parallelism that were measured."""
    return [[Group(pool, tp) for tp in TP if (pool.gpu, tp, samples) in simulator.times] for pool in gpus]


def _arrangements(simulator: SailorSimulator, gpus: Gpus, samples: int) -> set[tuple[Kind, ...]]:
    """The kind of each stage: few of any kinds, or many, where those of a kind follow one another."""
    groups = groups_of(simulator, gpus, samples)
    any_kind: list[Kind] = [(group,) for some in groups for group in some]
    found: set[tuple[Kind, ...]] = {
        kinds for count in range(1, MOST_UNLIKE + 1) for kinds in product(any_kind, repeat=count)
    }
    for each in product(*groups):
        kinds: list[Kind] = [(group,) for group in each] + ([tuple(each)] if len(each) > 1 else [])
        most = [MOST_STAGES if len(kind) == 1 else MOST_MIXED for kind in kinds]
        found |= {
            tuple(kinds[at] for at in order for _ in range(counts[at]))
            for counts in product(*(range(count + 1) for count in most)) if any(counts)
            for order in permutations(range(len(kinds)))
        }  # fmt: skip
    return found


def _most_replicas(kinds: Sequence[Kind], gpus: Gpus) -> int:
    """That all stages can have; a mixed stage has at least one of each kind."""
    mixed = max(kinds, key=len)
    stages = kinds.count(mixed) if len(mixed) > 1 else 0
    for replicas in range(_replicas_at_most(kinds, gpus), 0, -1):
        left = dict(gpus)
        for kind in kinds:
            if len(kind) == 1:
                left[kind[0].pool] -= replicas * kind[0].tp
        if min(left.values()) < 0:
            continue
        each = [min(left[group.pool] // group.tp, stages * (replicas - len(mixed) + 1)) for group in mixed]
        if not stages or (min(each) >= stages and sum(each) >= stages * replicas):
            return replicas
    return 0


def _replicas_at_most(kinds: Sequence[Kind], gpus: Gpus) -> int:
    """As if stages could have any of the GPUs that there are."""
    pools = {group.pool for kind in kinds for group in kind}
    return sum(gpus[pool] for pool in pools) // sum(min(group.tp for group in kind) for kind in kinds)


def _least_seconds(simulator: SailorSimulator, kinds: Sequence[Kind], samples: int, replicas: int) -> float:
    """That no partition of the layers is below: as if they could be divided anywhere, and every stage sent once."""
    rates = (1 / max(simulator.compute(range(LAYERS), group, samples) for group in kind) for kind in kinds)
    groups = {group for kind in kinds for group in kind}
    size = OUTPUTS[1] * FLOAT * samples
    sent = min(simulator.transfer(size, group, group) for group in groups) if len(kinds) > 1 else 0.0
    return math.ceil(simulator.batch / (samples * replicas)) * (1 / sum(rates) + sent)


def _pipelines(simulator: SailorSimulator, kinds: Sequence[Kind], samples: int, most: int) -> Iterator[Pipeline]:
    for layers in _partitions(simulator, kinds, samples):
        stages = tuple(Stage(some, kind) for some, kind in zip(layers, kinds, strict=True))
        if math.isinf(simulator.seconds(Pipeline(stages, 1, samples))):
            continue
        yield from (Pipeline(stages, count, samples) for count in counts_of_replicas(simulator, samples, most))


def _partitions(simulator: SailorSimulator, kinds: Sequence[Kind], samples: int) -> Iterator[list[range]]:
    """Equally many layers for each stage, and as many as balance them where they fit."""
    ends = [round(LAYERS * (at + 1) / len(kinds)) for at in range(len(kinds))]
    yield [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    least, most = 0.0, max(simulator.compute(range(LAYERS), group, samples) for kind in kinds for group in kind)
    found: list[range] = []
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        if tried := _within(simulator, middle, kinds, samples):
            most, found = middle, tried
        else:
            least = middle
    if found:
        yield found


def _within(simulator: SailorSimulator, limit: float, kinds: Sequence[Kind], samples: int) -> list[range]:
    """Layers for each stage, as many as take at most so long and fit; [] if some are left."""
    begin, found = 0, list[range]()
    for at, kind in enumerate(kinds):
        others = len(kinds) - 1 - at
        some = range(begin, LAYERS - others)
        while some and not all(
            simulator.compute(some, group, samples) <= limit
            and held_bytes(some, group.tp, samples, others + 1) <= simulator.room(group)
            for group in kind
        ):
            some = some[:-1]
        if not some:
            return []
        found.append(some)
        begin = some.stop
    return found if begin == LAYERS else []
