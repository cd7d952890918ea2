"""Black GPipe's table for VGG-19."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.cluster import Cluster, Device
from graphs.files.load import load_graph
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.black_gpipe import BlackGPipe
from placers.pipelines.published.bottleneck import LayerChain, partition
from placers.pipelines.published.pipeline import Stage
from tests.drawn import examples

VGG = Path(__file__).parents[3] / "shared" / "data" / "blackgpipe" / "vgg19.json"
MIB = 2.0**20
# Memory in MiB, the stages (layers from 1, replicas) and the bottleneck in microseconds, as published.
TABLE = {
    400: ([(1, 8, 1), (9, 20, 1), (21, 22, 1), (23, 27, 1)], 13166),
    448: ([(1, 7, 1), (8, 15, 1), (16, 22, 1), (23, 27, 1)], 11947),
    512: ([(1, 10, 2), (11, 17, 1), (18, 27, 1)], 8419),
    1024: ([(1, 14, 3), (15, 27, 1)], 7182),
    2048: ([(1, 27, 4)], 6776),
}


def vgg() -> LayerChain:
    profile = json.loads(VGG.read_text())
    held = np.array(profile["weight_MiB"]) + profile["micro_batch"] * np.array(profile["act_MiB_per_sample"])
    return LayerChain(np.array(profile["T_us"]) / 1e6, np.array(profile["C_us"]) / 1e6, held * MIB)


@pytest.mark.skipif(not VGG.is_file(), reason="the profile of VGG-19 is not at hand")
@pytest.mark.parametrize("memory", TABLE)
def test_each_row_of_the_table(memory: int) -> None:
    pipeline = partition(vgg(), 4, memory * MIB)
    stages, bottleneck = TABLE[memory]
    assert [(stage.first + 1, stage.end, stage.replicas) for stage in pipeline.stages] == stages
    assert pipeline.seconds * 1e6 == pytest.approx(bottleneck, abs=0.6)


@pytest.mark.skipif(not VGG.is_file(), reason="the profile of VGG-19 is not at hand")
@pytest.mark.parametrize("memory", TABLE)
def test_each_row_by_the_placer(memory: int) -> None:
    """On four devices with so much memory; a link carries a MiB in the time that the table implies."""
    profile = json.loads(VGG.read_text())
    layers = tuple(
        ProfiledLayer(name, "layer", seconds / 3e6, seconds * 2 / 3e6, (size * 8 * MIB,), False, held * MIB)
        for name, seconds, size, held in zip(
            profile["names"], profile["T_us"], profile["act_MiB_per_sample"], profile["weight_MiB"], strict=True
        )
    )
    graph = LayerProfile("vgg19", layers, tuple(itertools.pairwise(profile["names"]))).graph()
    device = Device("host", "gpu", 1.0, 1.0, memory * MIB)
    cluster = Cluster.uniform("four", device, 4, latency=0.0, bandwidth=MIB / 160.4e-6, shared_out=True)
    result = BlackGPipe(micro_batches=1).place(Problem(graph, cluster, optimizer="none"))
    stages, bottleneck = TABLE[memory]
    stage_of_layer = result.plan.schedule.stages[: len(layers)]
    found = [(stage_of_layer.index(s) + 1, stage_of_layer.count(s)) for s in sorted(set(stage_of_layer))]
    assert found == [(first, last - first + 1) for first, last, _ in stages]
    replicas = [len(result.plan.devices[first - 1]) for first, _ in found]
    assert replicas == [count for _, _, count in stages]
    said = float(result.notes[0].partition("to take ")[2].partition(" s ")[0])
    assert said * 1e6 == pytest.approx(bottleneck, abs=0.6)


def brute_force(chain: LayerChain, machines: int, memory: float, shared: int) -> tuple[float, int]:
    """The least bottleneck on as many machines as can be, and how many these are."""
    for used in range(machines, 0, -1):
        if (best := least_on(chain, used, memory, shared)) < math.inf:
            return best, used
        if not shared:
            break
    used = max(count for count in range(1, machines + 1) if shared % count == 0)
    return float(chain.seconds.sum()) / used, used


def least_on(chain: LayerChain, machines: int, memory: float, shared: int) -> float:
    layers, best = len(chain.seconds), math.inf
    for count in range(1, machines + 1):
        for cuts in itertools.combinations(range(1, layers), count - 1):
            bounds = [0, *cuts, layers]
            spans = list(itertools.pairwise(bounds))
            if any(chain.held_bytes[begin:end].sum() >= memory for begin, end in spans):
                continue
            for replicas in itertools.product(range(1, machines + 1), repeat=count):
                if sum(replicas) == machines and not any(shared % count for count in replicas):
                    times = [chain.seconds[b:e].sum() / r for (b, e), r in zip(spans, replicas, strict=True)]
                    best = min(best, max([*times, *(2 * chain.send_seconds[cut - 1] for cut in cuts)]))
    return best


@settings(max_examples=examples(80, 12), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from([5.0, 12.0, 20.0, 1e9]),
    st.sampled_from([0, 1, 4, 6]),
)
def test_it_is_the_best_of_all_pipelines_that_fit(
    drawn: list[tuple[int, int, int]], machines: int, memory: float, shared: int
) -> None:
    chain = LayerChain(*np.array(drawn, np.float64).T)
    pipeline = partition(chain, machines, memory, shared=shared)
    seconds, used = brute_force(chain, machines, memory, shared)
    assert pipeline.seconds == pytest.approx(seconds)
    assert sum(stage.replicas for stage in pipeline.stages) == used
    assert [stage.first for stage in pipeline.stages[1:]] == [stage.end for stage in pipeline.stages[:-1]]


def test_what_makes_no_sense_is_refused() -> None:
    one = np.ones(1)
    with pytest.raises(InputError, match="0 machines"):
        partition(LayerChain(one, one, one), 0, 1.0)
    with pytest.raises(InputError, match="as many seconds"):
        LayerChain(one, one, np.ones(2))
    assert partition(LayerChain(one, one, one), 2, 0.5).stages == (Stage(0, 1, (2,)),)  # nothing fits: data parallelism


SEGMENTS = (7, 8, 10, 14, 15, 17, 20, 22, 27)  # the last layers of what the published stage costs tell apart


def our_vgg() -> tuple[Floats, Floats, Floats]:
    """(layers,) each: FLOP, and what passes over memory for a thousandth; bytes of output; bytes of weights."""
    graph = load_graph("vgg:layers=19,image=224,batch=8", training=False)
    begins = [
        not (kind == "aten.relu" and name.startswith("features")) and kind != "aten.nll_loss_forward"
        for name, kind in zip(graph.names, graph.kinds, strict=True)  # a convolution and its ReLU are a layer
    ]
    layer = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    work = np.bincount(layer, weights=graph.flops + 1e-3 * graph.bytes_accessed)
    held = np.bincount(layer, weights=graph.weight_bytes)
    return work.astype(np.float64), graph.output_bytes[first], held.astype(np.float64)


@pytest.mark.skipif(not VGG.is_file(), reason="the profile of VGG-19 is not at hand")
@pytest.mark.parametrize("memory", TABLE)
def test_our_own_vgg_is_cut_where_theirs_is(memory: int) -> None:
    """Sizes and FLOPs are ours, the times of nine segments and the bandwidth those that the paper's table implies."""
    profile = json.loads(VGG.read_text())
    work, output_bytes, weight_bytes = our_vgg()
    assert weight_bytes / MIB == pytest.approx(np.array(profile["weight_MiB"]))
    assert output_bytes / MIB / 8 == pytest.approx(np.array(profile["act_MiB_per_sample"]))
    seconds = np.zeros(len(work))
    for begin, end in itertools.pairwise((0, *SEGMENTS)):
        total = sum(profile["T_us"][begin:end]) / 1e6
        seconds[begin:end] = total * work[begin:end] / work[begin:end].sum()
    send = output_bytes * np.median(np.array(profile["C_us"]) / 1e6 / output_bytes)
    pipeline = partition(LayerChain(seconds, send, weight_bytes + output_bytes), 4, memory * MIB)
    stages, bottleneck = TABLE[memory]
    assert [(stage.first + 1, stage.end, stage.replicas) for stage in pipeline.stages] == stages
    assert pipeline.seconds * 1e6 == pytest.approx(bottleneck, abs=0.6)
