"""PipeDream's optimizer meets the bottlenecks of the released one, and brute force on chains."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.pipelines.layers import Layers
from graphs.cluster import Cluster, Device
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.pipelines.published.cuts import Cuts
from placers.pipelines.published.replicated import Form, LinkLevel, ReplicatedStage, partition
from tests.drawn import examples
from tests.papers.pipedream_profiles import DATA, chain_profile, profile

MEMORY = 16e9  # bytes, where the released optimizer minds it
Chain = list[tuple[float, float, float]]  # seconds, output bytes and weight bytes of each layer


def row(devices: int, bandwidth: float, memory: float = 1e18) -> Cluster:
    device = Device("toy", "gpu", 1.0, 1.0, memory)
    return Cluster.uniform("row", device, devices, latency=0.0, bandwidth=bandwidth, shared_out=True)


def branching(of: LayerProfile, most: int = 3000) -> Cuts:
    problem = Problem(of.graph(), row(2, 1.0))
    found = Cuts.of_branches(problem, Layers.of(problem, 10**6), 1, most)
    assert found is not None
    return found


def test_every_bottleneck_of_the_released_optimizer_is_met() -> None:
    path = DATA / "reference.csv"
    if not path.is_file():
        pytest.skip("the profiles of PipeDream are not at hand")
    rows = [each for each in csv.DictReader(path.read_text().splitlines()) if each["bottleneck_s"]]
    cuts = {model: branching(profile(model)) for model in {each["model"] for each in rows}}
    for each in rows:
        machines, bandwidths = each["machines"].split("x"), each["bandwidth_GBs"].split("/")
        levels = [LinkLevel(int(m), float(b) * 1e9) for m, b in zip(machines, bandwidths, strict=True)]
        form = Form(
            printed=False,
            transfers=bool(each["activation_compression_ratio"]),
            straight=each["straight"] == "True",
            memory_bytes=MEMORY if each["memory_constraint"] == "True" else math.inf,
        )
        found = partition(cuts[each["model"]], levels, form)
        assert len(cuts[each["model"]]) == int(each["states"])
        assert found.seconds == pytest.approx(float(each["bottleneck_s"]), rel=1e-9)
        assert sum(stage.count for stage in found.stages) == math.prod(level.machines for level in levels)


# ---- all pipelines of a chain ----------------------------------------------------------------------------------------


def stage_seconds(
    seconds: float, weights: float, sent: Sequence[float], replicas: int, bandwidth: float, printed: bool,
    beside: int = 1,
) -> float:  # fmt: skip
    """A stage of so many replicas; `sent` are bytes that enter it and, in the released form, that leave it."""
    exchange = 4 * (replicas - 1) * weights / (bandwidth * replicas) / beside
    together = max(seconds, exchange) if printed else seconds + exchange
    links = 1 if printed else replicas
    return max(together / replicas, *(2 * each / (bandwidth * links) for each in sent), 0.0)


def best_of_all(drawn: Chain, levels: Sequence[LinkLevel], form: Form, first: int = 0, end: int = -1) -> float:
    """The least bottleneck of layers from `first` to `end`, by trying all cuts and replicas, level by level."""
    end, level = len(drawn) if end < 0 else end, levels[-1]
    best = math.inf
    for stages in range(1, min(level.machines, end - first) + 1):
        for cuts in itertools.combinations(range(first + 1, end), stages - 1):
            bounds = [first, *cuts, end]
            for replicas in itertools.product(range(1, level.machines + 1), repeat=stages):
                if sum(replicas) != level.machines or any(form.shared % count for count in replicas):
                    continue
                slowest = 0.0
                for number, count in enumerate(replicas):
                    begin, stop = bounds[number], bounds[number + 1]
                    seconds = (
                        best_of_all(drawn, levels[:-1], form, begin, stop)
                        if len(levels) > 1
                        else sum(layer[0] for layer in drawn[begin:stop])
                    )
                    weights = sum(layer[2] for layer in drawn[begin:stop])
                    entering = [drawn[begin - 1][1]] if number else []
                    leaving = [drawn[stop - 1][1]] if number and stop < len(drawn) and not form.printed else []
                    beside = levels[-2].machines if len(levels) > 1 and stages == 1 and not form.printed else 1
                    sent = [*entering, *leaving] if form.transfers else []
                    slowest = max(
                        slowest, stage_seconds(seconds, weights, sent, count, level.bandwidth, form.printed, beside)
                    )
                best = min(best, slowest)
    return best


LAYERS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)


@settings(max_examples=examples(100, 15), deadline=None)
@given(LAYERS, st.integers(1, 4), st.booleans(), st.booleans(), st.sampled_from((0, 2, 3)))
def test_on_a_chain_it_is_the_best_of_all_pipelines(
    drawn: Chain, machines: int, printed: bool, transfers: bool, shared: int
) -> None:
    cuts, form = branching(chain_profile(drawn)), Form(printed, transfers, shared=shared)
    assert len(cuts) == len(drawn)
    found = partition(cuts, [LinkLevel(machines, 2.0)], form)
    assert found.seconds == pytest.approx(best_of_all(drawn, [LinkLevel(machines, 2.0)], form))
    assert bool(found.stages) == np.isfinite(found.seconds)


@settings(max_examples=examples(60, 9), deadline=None)
@given(LAYERS, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_on_servers_it_is_the_best_of_all_pipelines_of_pipelines(
    drawn: Chain, within: int, between: int, transfers: bool
) -> None:
    levels, form = [LinkLevel(within, 4.0), LinkLevel(between, 1.0)], Form(transfers=transfers)
    found = partition(branching(chain_profile(drawn)), levels, form)
    assert found.seconds == pytest.approx(best_of_all(drawn, levels, form))
    if found.stages:
        assert sum(stage.count for stage in found.stages) == within * between
        assert [stage.end for stage in found.stages] == sorted({stage.end for stage in found.stages})
        assert found.stages[-1].end == len(drawn) - 1


@settings(max_examples=examples(60, 9), deadline=None)
@given(LAYERS, st.integers(1, 4), st.booleans(), st.booleans())
def test_the_stages_are_those_of_the_bottleneck(drawn: Chain, machines: int, printed: bool, transfers: bool) -> None:
    found = partition(branching(chain_profile(drawn)), [LinkLevel(machines, 2.0)], Form(printed, transfers))
    slowest, first = 0.0, 0
    for stage in found.stages:
        own = drawn[first : stage.end + 1]
        sent = [drawn[first - 1][1]] if first else []
        sent += [drawn[stage.end][1]] if first and stage.end < len(drawn) - 1 and not printed else []
        seconds, weights = sum(layer[0] for layer in own), sum(layer[2] for layer in own)
        took = stage_seconds(seconds, weights, sent if transfers else [], stage.count, 2.0, printed)
        slowest, first = max(slowest, took), stage.end + 1
    assert slowest == pytest.approx(found.seconds if found.stages else 0.0)


def test_a_chain_is_cut_alike_whether_it_might_branch_or_not() -> None:
    problem = Problem(chain_profile([(3, 2, 1), (1, 5, 2), (2, 1, 4), (2, 7, 0)]).graph(), row(2, 1.0))
    layers = Layers.of(problem, 10)
    chain, branches = Cuts.of_chain(layers, 2), Cuts.of_branches(problem, layers, 2)
    assert branches is not None
    for name in ("before", "seconds", "weight_bytes", "held_bytes", "kept_bytes", "comes_before"):
        assert np.array_equal(getattr(chain, name), getattr(branches, name))
    assert chain.sent_bytes[:-1].tolist() == branches.sent_bytes[:-1].tolist() == [1.0, 2.5, 0.5]


def test_memory_counts_for_every_mini_batch_in_flight() -> None:
    """Two layers of a second, with 4 bytes of weights and outputs of 1 byte; a replica of the last one has one
    mini-batch in flight, the first layer two if it is alone."""
    cuts = branching(chain_profile([(1, 1, 4), (1, 1, 4)]))
    alone, both = (ReplicatedStage(0, (1,)), ReplicatedStage(1, (1,))), (ReplicatedStage(1, (2,)),)
    held = 4 * 4.0  # weights, gradients and the state of Adam
    for memory, stages in ((2 * held + 2, both), (held + 1 + 4 + 1, alone), (held + 1 + 4, ())):
        found = partition(cuts, [LinkLevel(2, 1e9)], Form(transfers=False, memory_bytes=memory))
        assert found.stages == stages, memory
    released = Form(printed=False, transfers=False, memory_bytes=4.0 + 1)  # one beyond the first
    assert partition(cuts, [LinkLevel(2, 1.0)], released).stages == alone


def test_a_branch_that_is_read_later_stays_in_the_cut() -> None:
    """a feeds b and d, b feeds c, c and d end: while d is open, a's output is still to be handed on."""
    layers = tuple(ProfiledLayer(i, "ReLU", 1.0, 0.0, (10.0**power,), False, 0.0) for power, i in enumerate("abcd"))
    cuts = branching(LayerProfile("branch", layers, (("a", "b"), ("b", "c"), ("a", "d"))))
    of = {"".join("abcd"[layer] for layer in np.flatnonzero(each)): number for number, each in enumerate(cuts.before)}
    assert set(of) == {"a", "ab", "abc", "ad", "abd", "abcd"}
    assert cuts.sent_bytes[of["ab"]] == 11
    assert cuts.seconds[of["abc"]] == 3
    assert cuts.comes_before[of["ab"], of["abcd"]]
    assert not cuts.comes_before[of["abc"], of["abd"]]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="levels of at least one machine"):
        partition(branching(chain_profile([(1, 1, 1)] * 3)), [], Form())


def test_a_graph_that_branches_too_much_has_no_cuts() -> None:
    wide = chain_profile([(1, 1, 1)]).layers + tuple(
        ProfiledLayer(f"n{i}", "ReLU", 1.0, 0.0, (1.0,), False, 0.0) for i in range(14)
    )
    fan = LayerProfile("wide", wide, tuple(("node0", f"n{i}") for i in range(14)))
    problem = Problem(fan.graph(), row(2, 1.0))
    assert Cuts.of_branches(problem, Layers.of(problem, 100), 1, 3000) is None
