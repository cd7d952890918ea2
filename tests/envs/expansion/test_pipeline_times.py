"""Step times and memory of pipelines: closed forms, and published throughput."""

from itertools import product

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.files.load import load_graph
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped

EXACT = 1e-9
ORDERS = ("gpipe", "early_backward_a", "early_backward_b")


def times(chain: Pipeline, order: str, bandwidth: float = np.inf) -> Timeline:
    return simulate(chain.problem(servers(chain.stages, bandwidth=bandwidth)), chain.plan(order))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_equal_stages_without_transfers(stages: int, order: str) -> None:
    """(M + S - 1)(F + B), whichever of the orders."""
    for micro_batches in range(1, 17):
        timeline = times(Pipeline(stages, micro_batches, forward=1.0, backward=1.7), order)
        assert timeline.step_seconds == pytest.approx((micro_batches + stages - 1) * 2.7, rel=EXACT)


SENT = list(product((2, 3, 4), (1, 2, 4, 8, 16, 32, 64), (0.1, 0.25, 0.5, 1.0)))  # stages, micro-batches, ratio


def sending(stages: int, micro_batches: int, ratio: float) -> Pipeline:
    """Transfers that take a ratio of the pass before them, at a byte per second."""
    return Pipeline(stages, micro_batches, forward=1.0, backward=2.0, activation=ratio, gradient=2.0 * ratio)


@pytest.mark.parametrize("order", ["gpipe", "early_backward_b"])
def test_transfers_delay_a_step_only_at_its_ends(order: str) -> None:
    """(F + B)(M + (1 + a)(S - 1)) if transfers take a times as long as stages, at most as long: 168 cases."""
    for stages, micro_batches, ratio in SENT:
        seconds = times(sending(stages, micro_batches, ratio), order, bandwidth=1.0).step_seconds
        assert seconds == pytest.approx(3.0 * (micro_batches + (1 + ratio) * (stages - 1)), rel=EXACT)


def test_early_backward_a_waits_for_transfers() -> None:
    """It is slower where a micro-batch on its way is one that its limit counts: in most of these cases."""
    differ = 0
    for stages, micro_batches, ratio in SENT:
        seconds = times(sending(stages, micro_batches, ratio), "early_backward_a", bandwidth=1.0).step_seconds
        least = 3.0 * (micro_batches + (1 + ratio) * (stages - 1))
        assert seconds >= least * (1 - EXACT)
        differ += seconds > least * (1 + EXACT)
    assert differ == 60


@pytest.mark.parametrize(("forward", "backward"), [(1.0, 2.0), (1.0, 1.0), (2.0, 3.0)])
@pytest.mark.parametrize(("down", "up"), [(0.5, 0.5), (3.0, 4.0)])
def test_the_period_of_early_backward_a_with_two_stages(
    forward: float, backward: float, down: float, up: float
) -> None:
    """max(F + B, (2 (F + B) + c_f + c_b) / 2): one round trip for each two micro-batches in flight."""
    seconds = [
        times(
            Pipeline(2, many, forward=forward, backward=backward, activation=down, gradient=up), "early_backward_a", 1.0
        ).step_seconds
        for many in (20, 40)
    ]
    pair = forward + backward
    assert (seconds[1] - seconds[0]) / 20 == pytest.approx(max(pair, (2 * pair + down + up) / 2), rel=EXACT)


@pytest.mark.parametrize("micro_batches", [4, 8, 16])
def test_activations_that_the_first_of_two_stages_keeps(micro_batches: int) -> None:
    chain = Pipeline(2, micro_batches, activation=1.0)
    peaks = [times(chain, order).peak_bytes[0] for order in ORDERS]
    assert peaks == [micro_batches, 2, 3]


@pytest.mark.parametrize(("forward", "inputs", "weights"), [(1.0, 1.0, 1.0), (2.0, 3.0, 1.0), (2.0, 2.0, 2.0)])
def test_zb_h1_fills_the_bubble_of_1f1b_with_weight_gradients(forward: float, inputs: float, weights: float) -> None:
    """(P - 1)(F + I - W) remains (Qi et al., 2023).

    That of 1F1B is (P - 1)(F + I) here: an input gradient leaves as soon as it is computed, and not, as the paper has
    it, after the weight gradient of the same pass.
    """
    for stages, rounds in product((2, 4, 8), (2, 3)):
        chain = Pipeline(stages, rounds * stages, forward=forward, backward=inputs, weight_gradient=weights)
        work = chain.micro_batches * (forward + inputs + weights)
        for order, bubble in (("early_backward_a", forward + inputs), ("zb_h1", forward + inputs - weights)):
            assert times(chain, order).step_seconds == pytest.approx(work + (stages - 1) * bubble, rel=EXACT)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(
    ("order", "bubble"), [("interleaved", 2), ("interleaved_zero_bubble", 1), ("zb_v", 1), ("dualpipe_v", 1)]
)
def test_two_stages_on_a_device_have_a_smaller_bubble(order: str, bubble: int, ranks: int) -> None:
    """F = I = W = 1 of half a device's stages: that of 1F1B is 4 (P - 1), with stages twice as long."""
    chain = Pipeline(2 * ranks, 2 * ranks, weight_gradient=1.0)
    shape = v_shaped if order in ("zb_v", "dualpipe_v") else interleaved
    timeline = simulate(chain.problem(servers(ranks)), chain.plan(order, ranks=shape(ranks)))
    idle = timeline.step_seconds - 6 * chain.micro_batches
    assert idle == pytest.approx(bubble * (ranks - 1), abs=EXACT)


def test_zb_h2_hides_transfers() -> None:
    """The last device is never idle once the first micro-batch has come there: (P - 1)(F + c)."""
    for ranks, seconds in product((2, 4, 8), (0.1, 0.3)):
        chain = Pipeline(ranks, 2 * ranks, weight_gradient=1.0, activation=seconds, gradient=seconds)
        idle = times(chain, "zb_h2", bandwidth=1.0).step_seconds - 3 * chain.micro_batches
        assert idle == pytest.approx((ranks - 1) * (1 + seconds), abs=EXACT)


@pytest.mark.parametrize(
    ("order", "passes", "sent"),
    [
        ("v_half:times=1+1+1+0.3", (1.0, 1.0, 1.0), 0.3),
        ("v_half:times=1+1.5+1+0.1", (1.0, 1.5, 1.0), 0.1),
        ("v_min:times=1+1.2+0.8+0", (1.0, 1.2, 0.8), 0.0),
    ],
)
def test_v_shaped_orders_are_made_for_the_times_of_their_passes(
    order: str, passes: tuple[float, float, float], sent: float
) -> None:
    """In the same memory; without these knobs they are made for passes that take equally long, and no transfers."""
    chain = Pipeline(
        16, 16, forward=passes[0], backward=passes[1], weight_gradient=passes[2], activation=sent, gradient=sent
    )
    made_for_it, plain = (
        simulate(chain.problem(servers(8, bandwidth=1.0)), chain.plan(each, ranks=v_shaped(8))).step_seconds
        for each in (order, order.partition(":")[0])
    )
    assert made_for_it < plain


def test_memory_and_time_of_v_shaped_orders() -> None:
    """8 devices of two stages, 16 micro-batches: half the bubble of 1F1B, 42, in 5 / 8 of the activations, and less.

    Counted in activations of a stage; an input that has arrived and waits for its stage is one more.
    """
    chain = Pipeline(16, 16, weight_gradient=1.0, activation=1.0)
    problem = chain.problem(servers(8))
    for order, bubble, held in (("zb_v", 7, 16), ("v_half:in_flight=8", 7, 16), ("v_half", 17, 10), ("v_min", 25, 8)):
        timeline = simulate(problem, chain.plan(order, ranks=v_shaped(8)))
        assert timeline.step_seconds == pytest.approx(6 * 16 + bubble, rel=EXACT)
        assert held <= timeline.peak_bytes.max() <= held + 2


# Black GPipe, VGG-19 on 2 GPUs: of a micro-batch size the seconds t of a micro-batch on a stage and U of the update,
# as fitted to its table, and the images per second that it reports for mini-batch sizes and numbers of micro-batches
FITTED = {4: (0.304, 0.015), 8: (0.549, 0.373), 16: (0.802, 0.717)}
REPORTED = {
    (16, 2): 7.91, (16, 4): 10.42, (32, 2): 10.27, (32, 4): 10.25, (32, 8): 11.62, (64, 4): 13.51, (64, 8): 12.06,
    (64, 16): 12.34, (128, 8): 16.14, (128, 16): 13.18,
}  # fmt: skip


@pytest.mark.parametrize(("batch", "micro_batches"), REPORTED)
def test_the_throughput_of_vgg_by_black_gpipe(batch: int, micro_batches: int) -> None:
    seconds, update = FITTED[batch // micro_batches]
    chain = Pipeline(2, micro_batches, forward=seconds / 3, backward=seconds * 2 / 3, update=update)
    assert batch / times(chain, "gpipe").step_seconds == pytest.approx(REPORTED[batch, micro_batches], rel=3e-3)


def test_memory_of_a_captured_transformer_by_order() -> None:
    """Peak of the first of 4 stages, 16 micro-batches: every order keeps fewer activations than the one before."""
    graph = load_graph("transformer:layers=8,width=128,heads=4,batch=32")
    stages = quarters(graph)
    problem = Problem(graph, servers(4, bandwidth=1e9))
    peaks = [
        simulate(problem, Plan(tuple((stage,) for stage in stages), schedule=schedule)).peak_bytes[0]
        for schedule in (
            *(Schedule(16, stages, order) for order in ("gpipe", "early_backward_b", "early_backward_a")),
            Schedule(16, stages, "early_backward_a", recompute=(0, 1, 2, 3)),
        )
    ]
    assert peaks == sorted(set(peaks), reverse=True)


def quarters(graph: OpGraph) -> tuple[int, ...]:
    """(ops,) four stages of as many forward ops each; other ops are with those that they are tied to."""
    forward = np.flatnonzero(graph.phase == Phase.FORWARD)[::-1]
    of_unit = np.zeros(graph.num_units, np.int64)
    of_unit[graph.units[forward]] = np.arange(len(forward))[::-1] * 4 // len(forward)
    return tuple(of_unit[graph.units].tolist())
