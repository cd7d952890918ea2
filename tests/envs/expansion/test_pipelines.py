"""The toys that tests of expansions share mean what they say."""

import numpy as np

from envs.simulation.simulator import Simulator, simulate
from graphs.op_graph import Phase
from tests.envs.expansion.pipelines import Pipeline, drawn, interleaved, servers, v_shaped


def test_a_chain_runs_forward_and_back_and_sends_between_its_stages() -> None:
    chain = Pipeline(2, forward=[1, 2], backward=[1, 3], activation=6, gradient=2, update=1)
    timeline = simulate(chain.problem(servers(2, latency=1, bandwidth=2)), chain.plan("gpipe"))
    assert drawn(timeline) == [
        "F0                                  B0 U",
        "               F0--- B0------ U",
    ]
    assert timeline.expansion is not None
    sent = timeline.transfers.producer
    assert [timeline.problem.graph.names[op] for op in sent] == ["s0", "s1.grad"]
    assert timeline.peak_bytes.tolist() == [8, 12]  # s0 and the gradient; s0 arrived, and s1


def test_the_parts_of_a_backward_pass_are_drawn_apart_if_asked_to() -> None:
    chain = Pipeline(2, weight_gradient=2)
    timeline = simulate(chain.problem(), chain.plan("gpipe"))
    assert drawn(timeline) == ["F0       B0------", "   F0 B0------"]
    assert drawn(timeline, parts=True) == ["F0       I0 W0---", "   F0 I0 W0---"]
    assert drawn(timeline, second=0.5)[1] == "      F0--- B0---------------"


def test_seconds_and_bytes_are_those_of_a_micro_batch_except_for_weights() -> None:
    graph = Pipeline(2, 4, forward=3, activation=5, weights=7, update=2).graph()
    assert graph.flops.tolist() == [12, 12, 4, 0, 4, 0, 2, 2]
    assert graph.output_bytes.tolist() == [20, 20, 0, 7, 0, 7, 0, 0]
    simulator = Simulator(Pipeline(1, weights=7, update=1).problem(optimizer="adam"))
    assert simulator.run(np.zeros(1, np.int64)).peak_bytes == 28  # the weight, its gradient and its state


def test_devices_follow_ranks_and_replicas() -> None:
    plan = Pipeline(4).plan(ranks=v_shaped(2), replicas=[1, 3])
    assert plan.devices[:4] == ((0,), (1, 2, 3), (1, 2, 3), (0,))
    assert plan.schedule.stages == (0, 1, 2, 3, 3, 3, 2, 2, 1, 1, 0, 0, 0, 1, 2, 3)
    assert interleaved(2) == ((0, 2), (1, 3))


def test_a_graph_for_inference_has_forward_ops_only() -> None:
    graph = Pipeline(3, is_training=False).graph()
    assert set(graph.phase.tolist()) == {Phase.FORWARD}
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
