"""DAPPLE's pipelines, simulated: orders of passes, what its runtime measured, and what its equations say next to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.pipelines.published.latency import latency, pivot
from placers.pipelines.published.pipeline import Chain, Stage, estimate
from placers.pipelines.published.servers import Servers
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.papers.dapple_profiles import problem_of, profile
from tests.papers.test_dapple import chain_of, every_pipeline, row

ORDERS = ("early_backward_a", "early_backward_b")


@pytest.mark.parametrize(
    ("ratio", "published", "simulated"),
    [(0.06, 1.0, 1.030), (0.03, 1.02, 1.015), (0.16, 1.1, 1.079), (0.10, None, 1.049)],
    ids=["BERT-48", "XLNet-36", "VGG-19", "GNMT-16"],
)
def test_table_iv(ratio: float, published: float | None, simulated: float) -> None:
    """How much faster PB is than PA, of two stages whose transfers take this ratio of their computing.

    GNMT's 1.31 does not follow from its ratio.
    """
    each_way = ratio * (1.0 + 2.0) / 2
    pipeline = Pipeline(2, 256, forward=1.0, backward=2.0, activation=each_way, gradient=each_way)
    problem = pipeline.problem(servers(2, bandwidth=1.0))
    slow, fast = (simulate(problem, pipeline.plan(order)).step_seconds for order in ORDERS)
    assert slow / fast == pytest.approx(simulated, abs=0.002)
    if published is not None:
        assert slow / fast == pytest.approx(published, abs=0.031)


def alternating(pipeline: Pipeline, bandwidth: float) -> tuple[Floats, Floats]:
    """Seconds of a micro-batch forward and backward, of stages that compute and that send in turn."""
    count = 2 * pipeline.stages - 1
    forward, backward = np.full(count, pipeline.activation / bandwidth), np.full(count, pipeline.gradient / bandwidth)
    forward[::2], backward[::2] = pipeline.forward, pipeline.backward
    return forward, backward


def half_duplex(cluster: Cluster) -> Cluster:
    """The same, but the two directions between two devices share a channel."""
    return replace(cluster, channel=np.minimum(cluster.channel, cluster.channel.T))


@pytest.mark.parametrize("order", ORDERS)
def test_the_equations_are_a_lower_bound_if_the_pivot_computes_or_links_are_half_duplex(order: str) -> None:
    rng, count, network_pivots = np.random.default_rng(7), examples(60, 20), 0
    for _ in range(count):
        stages, micro_batches = int(rng.integers(2, 5)), int(rng.integers(1, 10))
        pipeline = Pipeline(
            stages, micro_batches, forward=rng.uniform(0.2, 2, stages).tolist(),
            backward=rng.uniform(0.2, 4, stages).tolist(), activation=float(rng.uniform(0, 4)),
            gradient=float(rng.uniform(0, 4)),
        )  # fmt: skip
        forward, backward = alternating(pipeline, 1.0)
        parts, nothing = len(forward), np.zeros(len(forward))
        links = servers(stages, bandwidth=1.0)
        is_network = pivot(forward, backward, parts, micro_batches) % 2 == 1
        network_pivots += is_network
        for cluster in (half_duplex(links),) if is_network else (links, half_duplex(links)):
            step = simulate(pipeline.problem(cluster), pipeline.plan(order)).step_seconds
            for corrected in (False, True):
                bound = latency(forward, backward, nothing, parts, micro_batches, corrected)
                assert bound <= step * (1 + 1e-9)
    assert count / 12 <= network_pivots <= count * 11 / 12


def test_with_links_of_two_directions_the_equations_may_be_far_above() -> None:
    """A link that is the pivot adds up what goes forward and what comes back, which pass each other."""
    pipeline = Pipeline(2, 32, forward=0.1, backward=0.1, activation=1.0, gradient=1.0)
    forward, backward = alternating(pipeline, 1.0)
    step = simulate(pipeline.problem(servers(2, bandwidth=1.0)), pipeline.plan("early_backward_b")).step_seconds
    assert latency(forward, backward, np.zeros(3), 3, 32, False) > 1.2 * step


def bert(order: str, micro_batches: int, recompute: tuple[int, ...] = ()) -> Timeline:
    """BERT-48 in two stages on testbed B, in micro-batches of two samples, as the profile has them."""
    problem = problem_of(profile("bert-48"), micro_batches, "B")
    layers = Layers.of(problem, 100)
    stage = (np.cumsum(layers.forward) > layers.forward.sum() / 2)[layers.of_unit][problem.graph.units].astype(int)
    schedule = Schedule(micro_batches=micro_batches, stages=tuple(stage.tolist()), order=order, recompute=recompute)
    return simulate(problem, Plan(tuple((int(s),) for s in stage), schedule=schedule))


def test_table_vi() -> None:
    """Samples per second of BERT-48; the scale of the profile and the time of updates are fitted to two rows."""
    few, eight, many = (bert("early_backward_a", count).step_seconds for count in (2, 8, 16))
    fitted = np.linalg.solve([[few, 1.0], [many, 1.0]], [4 / 5.10, 32 / 8.18])

    def throughput(seconds: float, micro_batches: int) -> float:
        return float(2 * micro_batches / (fitted @ [seconds, 1.0]))

    assert throughput(eight, 8) == pytest.approx(7.60, rel=0.015)
    gpipe = throughput(bert("gpipe", 2).step_seconds, 2)
    assert throughput(many, 16) / gpipe == pytest.approx(1.60, abs=0.05)
    assert (many - eight) / 8 == pytest.approx((eight - few) / 6, rel=1e-9)


def test_memory_in_table_vi() -> None:
    """What DAPPLE holds does not grow with the micro-batches, what GPipe holds does, and recomputation saves some.

    The profile has less of the activations than the model, so that the table's bytes do not follow from it.
    """
    dapple = [bert("early_backward_a", count).peak_bytes[:2] for count in (2, 8, 16)]
    recomputed = [bert("early_backward_a", count, (0, 1)).peak_bytes[:2] for count in (2, 8, 16)]
    gpipe = [bert("gpipe", count).peak_bytes[:2] for count in (2, 4, 6)]
    for peaks in (dapple, recomputed):
        assert np.allclose(peaks, peaks[0], rtol=1e-12)
    assert np.allclose(gpipe[2] - gpipe[1], gpipe[1] - gpipe[0])
    assert gpipe[0].max() > dapple[0].max() > recomputed[0].max()
    assert (gpipe[1] > gpipe[0]).all()


PARAMETERS, EMBEDDINGS = 12_596_224, 31.8e6  # of a layer of BERT, and before the first one
GIGABYTE, RESERVE = 1e9, 5.05  # memory of a device, in these, less what is calibrated: activations and work space


def fits(layers: int, devices: int) -> bool:
    """Whether BERT of so many layers does, with 16 bytes for each parameter, where stages hold about as much.

    The first stage has the embeddings, and so fewer layers.
    """
    each = (layers * PARAMETERS + EMBEDDINGS) / devices
    first = layers if devices == 1 else int((each - EMBEDDINGS) / PARAMETERS)
    ends = (1 + first + np.round(np.linspace(0, layers - first, devices))).astype(int).tolist()
    weights = [4.0 * EMBEDDINGS, *[4.0 * PARAMETERS] * layers]
    cluster = servers(devices, memory=(16 - RESERVE) * GIGABYTE)
    problem = Problem(chain_of([1.0] * len(weights), weights=weights).graph(), cluster)
    bounds = zip([0, *ends], ends, strict=False)
    stages = tuple(LayerStage(begin, end, (device,)) for device, (begin, end) in enumerate(bounds))
    pipeline = LayerPipeline(stages, 2 * devices, recompute=tuple(range(devices)))
    return simulate(problem, pipeline.plan(problem, Layers.of(problem, len(weights)))).fits


@pytest.mark.parametrize(("devices", "published", "most"), [(2, 106, 105), (4, 215, 213), (8, 428, 429)])
def test_table_viii(devices: int, published: int, most: int) -> None:
    """The most layers of BERT that fit, within 2% of what is published; one device holds 51, by the same constant."""
    assert fits(most, devices)
    assert not fits(most + 1, devices)
    assert most == pytest.approx(published, rel=0.02)
    assert fits(51, 1)
    assert not fits(52, 1)


def planned(problem: Problem, stages: tuple[Stage, ...], micro_batches: int, order: str) -> Plan:
    """A pipeline of a chain, a stage on each of the devices that follow one another; gradients are summed at once."""
    first = np.cumsum([0, *(stage.replicas for stage in stages)]).tolist()
    stage_of_layer = np.repeat(np.arange(len(stages)), [stage.end - stage.first for stage in stages])
    of_op = stage_of_layer[Layers.of(problem, 100).of_unit[problem.graph.units]].tolist()
    schedule = Schedule(micro_batches=micro_batches, stages=tuple(of_op), order=order, bucket_bytes=1e18)
    return Plan(tuple(tuple(range(first[s], first[s + 1])) for s in of_op), schedule=schedule)


@pytest.mark.parametrize("chains", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_the_twenty_best_by_the_equations_contain_the_best(chains: int) -> None:
    """All 120 pipelines of eight layers on four devices, simulated."""
    rng = np.random.default_rng(3)
    for _ in range(chains):
        seconds, sizes, weights = (rng.uniform(low, high, 8).tolist() for low, high in ((1, 9), (0, 4), (0, 9)))
        problem = Problem(chain_of(seconds, sizes, weights).graph(), row(4, 4.0))
        chain, links = Chain.of(Layers.of(problem, 8), np.inf), Servers.of(problem.cluster).links
        pipelines = every_pipeline(8, 4)
        ranked = sorted(pipelines, key=lambda each: estimate(chain, links, each, 4, corrected=True).seconds)
        steps = [simulate(problem, planned(problem, each, 4, "early_backward_b")).step_seconds for each in ranked]
        assert min(steps[:20]) == pytest.approx(min(steps), rel=1e-9)
