"""GPipe's and PipeDream's partitions as placers."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.problem import Problem
from placers.gpipe import GPipe
from placers.pipedream import PipeDream
from placers.pipelines.cutting.chain import least_bottleneck
from tests.drawn import examples
from tests.oracle.toys import toy_cluster, toy_graph

CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_gpipe_balances_time() -> None:
    problem = Problem(toy_graph([4, 1, 1, 1, 4], CHAIN), toy_cluster(3))
    assert GPipe().place(problem).plan.placement.tolist() == [0, 1, 1, 1, 2]


def test_pipedream_avoids_a_cut_that_takes_long_to_send() -> None:
    cheap = Problem(toy_graph([3, 3, 3, 3, 1], CHAIN, output_bytes=[1, 1, 1, 1, 0]), toy_cluster(2))
    assert PipeDream().place(cheap).plan.placement.tolist() == [0, 0, 1, 1, 1]
    dear = Problem(toy_graph([3, 3, 3, 3, 1], CHAIN, output_bytes=[1, 9, 1, 1, 0]), toy_cluster(2))
    assert PipeDream().place(dear).plan.placement.tolist() == [0, 0, 0, 1, 1]


def test_pipedream_keeps_to_memory() -> None:
    uses = [(i, i) for i in range(5)]
    graph = toy_graph([9, 1, 1, 1, 1], CHAIN, output_bytes=[0] * 5, weights=[10] * 5, weight_uses=uses)
    assert PipeDream().place(Problem(graph, toy_cluster(2, memory=100.0))).plan.placement.tolist() == [0, 1, 1, 1, 1]
    assert PipeDream().place(Problem(graph, toy_cluster(2, memory=30.0))).plan.placement.tolist() == [0, 0, 1, 1, 1]
    assert PipeDream().place(Problem(graph, toy_cluster(2, memory=1.0))).plan.placement.tolist() == [0, 1, 1, 1, 1]


@settings(max_examples=examples(80, 12), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=6),
    st.integers(1, 3),
    st.sampled_from([4.0, 9.0, np.inf]),
)
def test_it_is_the_best_of_all_contiguous_partitions(
    drawn: list[tuple[int, int, int]], devices: int, limit: float
) -> None:
    seconds, entering, memory = np.array(drawn, np.float64).T
    unequal = seconds[:, None] * np.arange(1, devices + 1)
    stages = least_bottleneck(unequal, entering, memory, np.full(devices, limit))

    def bottleneck(bounds: tuple[int, ...]) -> float:
        slowest = 0.0
        for device, (begin, end) in enumerate(itertools.pairwise((0, *bounds))):
            if memory[begin:end].sum() > limit:
                return np.inf
            sent = entering[begin] if 0 < begin < end else 0.0
            slowest = max(slowest, unequal[begin:end, device].sum(), sent)
        return slowest

    every = itertools.combinations_with_replacement(range(len(drawn) + 1), devices - 1)
    best = min(bottleneck((*bounds, len(drawn))) for bounds in every)
    assert (np.inf if stages is None else bottleneck(tuple(np.cumsum(np.bincount(stages)).tolist()))) == best


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_blocks_have_the_least_largest_sum(seconds: list[int], data: st.DataObject) -> None:
    count, nothing = data.draw(st.integers(1, len(seconds))), np.zeros(len(seconds))
    each = np.repeat(np.array(seconds, np.float64)[:, None], count, axis=1)
    stages = least_bottleneck(each, nothing, nothing, np.zeros(count), may_be_empty=False)
    assert stages is not None
    sizes = np.bincount(stages).tolist()
    assert len(sizes) == count
    assert min(sizes) >= 1
    assert (np.diff(stages) >= 0).all()
    ends = np.cumsum([0, *sizes])
    largest = max(sum(seconds[b:e]) for b, e in itertools.pairwise(ends.tolist()))
    every = (
        max(sum(seconds[b:e]) for b, e in itertools.pairwise([0, *cuts, len(seconds)]))
        for cuts in itertools.combinations(range(1, len(seconds)), count - 1)
    )
    assert largest == min(every)
