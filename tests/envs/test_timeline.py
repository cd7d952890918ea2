"""Steps worked out by hand, drawn."""

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.cluster import GIB, Cluster, Device
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.drawings import drawn_rows
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def chart(graph: OpGraph, cluster: Cluster, placement: list[int], order: str = "fifo") -> tuple[Timeline, list[str]]:
    """The timeline, and its drawing at one column per second."""
    timeline = Simulator(Problem(graph, cluster), order=order).timeline(placement)
    return timeline, drawn_rows(timeline)


DIAMOND = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], output_bytes=[1, 2, 1, 1])
STAR = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 3)], output_bytes=[2, 0, 0, 0])


def test_one_device_runs_one_op_after_the_other() -> None:
    assert chart(DIAMOND, toy_cluster(1), [0, 0, 0, 0])[1] == ["gpu:0 |abbbcccd|"]


def test_an_output_travels_to_the_device_that_needs_it() -> None:
    assert chart(DIAMOND, toy_cluster(2), [0, 0, 1, 1])[1] == [
        "gpu:0       |abbb...|",
        "gpu:1       |..ccc.d|",
        "gpu:0>gpu:1 |.a..bb.|",
    ]


def test_latency_comes_on_top_of_each_transfer() -> None:
    assert chart(DIAMOND, toy_cluster(2, latency=2.0), [0, 0, 1, 1])[1] == [
        "gpu:0       |abbb.....|",
        "gpu:1       |....ccc.d|",
        "gpu:0>gpu:1 |.aaabbbb.|",
    ]


def test_transfers_on_a_shared_channel_wait_for_each_other() -> None:
    assert chart(STAR, toy_cluster(3, shared_out=True), [0, 1, 2, 0])[1] == [
        "gpu:0   |ad....|",
        "gpu:1   |...b..|",
        "gpu:2   |.....c|",
        "gpu:0>* |.aaaa.|",
    ]


def test_a_multicast_channel_serves_all_with_one_transfer() -> None:
    assert chart(STAR, toy_cluster(3, shared_out=True, multicast=True), [0, 1, 2, 0])[1] == [
        "gpu:0   |ad..|",
        "gpu:1   |...b|",
        "gpu:2   |...c|",
        "gpu:0>* |.aa.|",
    ]


def test_a_channel_rests_for_its_gap() -> None:
    assert chart(STAR, toy_cluster(3, shared_out=True, gap=1.0), [0, 1, 2, 0])[1][3] == "gpu:0>* |.aa.aa.|"


def test_a_device_rests_after_each_launch_and_ops_that_take_no_time_do_not_wait() -> None:
    graph = toy_graph([1, 0, 2, 1], [(0, 1), (1, 2)])
    timeline, drawn = chart(graph, toy_cluster(1, launch=1.0), [0, 0, 0, 0])
    assert drawn == ["gpu:0 |a.d.cc|"]
    assert timeline.start[1] == timeline.finish[1] == 1  # it waits for no launch
    assert timeline.busy_seconds.tolist() == [4.0]


def test_the_longest_path_goes_first_if_asked_to() -> None:
    graph = toy_graph([1, 1, 2, 2], [(1, 2), (2, 3)])
    cluster = toy_cluster(2)
    assert chart(graph, cluster, [0, 0, 1, 1])[1][0] == "gpu:0       |ab.....|"
    assert chart(graph, cluster, [0, 0, 1, 1], "longest_path")[1][0] == "gpu:0       |ba....|"


def test_a_control_edge_orders_and_carries_nothing() -> None:
    graph = toy_graph([1, 1], [(0, 1)], control=[True])
    timeline, drawn = chart(graph, toy_cluster(2, latency=5.0), [0, 1])
    assert drawn == ["gpu:0 |a.|", "gpu:1 |.b|"]
    assert len(timeline.transfers) == 0


def test_memory_is_held_until_the_last_reader_has_ended() -> None:
    graph = toy_graph(
        [1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], output_bytes=[1, 2, 4, 8],
        weights=[16, 32], weight_uses=[(0, 0), (1, 0), (2, 0), (2, 1)],
    )  # fmt: skip
    timeline, _ = chart(graph, toy_cluster(2), [0, 0, 1, 1])
    assert timeline.held_bytes.tolist() == [16, 48]  # the shared weight is held once per device
    first, second = timeline.memory_curve(0), timeline.memory_curve(1)
    assert first[0].tolist() == [0, 1, 4, 6]
    assert first[1].tolist() == [17, 19, 18, 16]  # a's output stays for b, b's until its transfer has arrived
    assert second[0].tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert second[1].tolist() == [48, 49, 53, 55, 54, 62, 48]
    assert timeline.peak_bytes.tolist() == [19, 62]


def test_what_does_not_fit_is_said_with_its_parts() -> None:
    gpu = Device("any", "gpu", 1.0, 1.0, 16 * GIB)
    cluster = Cluster.uniform("pair", gpu, 2, latency=0.0, bandwidth=1.0, shared_out=False)
    graph = OpGraph(
        "big", ("a", "b"), ("k", "k"), np.ones(2), np.zeros(2), np.array([5.1, 0.0]) * GIB, np.array([[0, 1]]),
        weights=np.array([3.025]) * GIB, weight_uses=np.array([[0, 0]]), phase=np.array([0, Phase.UPDATE]),
    )  # fmt: skip
    timeline = Simulator(Problem(graph, cluster)).timeline([0, 0])
    assert not timeline.fits
    assert timeline.overflow() == (
        "gpu:0 needs 17.2 GiB of its 16.0 GiB "
        "(parameters, gradients and optimizer state 12.1 GiB, activations 5.1 GiB at the peak)"
    )
    assert Simulator(Problem(DIAMOND, toy_cluster(2))).timeline([0, 0, 1, 1]).overflow() == ""
    small = Simulator(Problem(DIAMOND, toy_cluster(2, memory=2.0))).timeline([0, 0, 0, 0])
    assert (
        small.overflow() == "gpu:0 needs 4 bytes of its 2 bytes (parameters 0 bytes, activations 4 bytes at the peak)"
    )


def test_a_drawing_has_an_axis_and_a_legend() -> None:
    timeline, _ = chart(DIAMOND, toy_cluster(1), [0, 0, 0, 0])
    assert timeline.draw(24).split("\n") == [
        "gpu:0 |aabbbbbbccccccdd|",
        "      0             8 s",
        "a a  b b  c c  d d",
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_many_ops_are_drawn_without_letters_in_the_given_width(width: int) -> None:
    timeline = Simulator(Problem(random_graph(100, 0), toy_cluster(3))).timeline([i % 3 for i in range(100)])
    lines = timeline.draw(width).split("\n")
    assert {len(line) for line in lines[:-1]} == {width}
    assert set("".join(line.partition("|")[2] for line in lines[:-1])) <= set("#=.|")


def test_an_image_has_a_band_per_row() -> None:
    timeline, _ = chart(DIAMOND, toy_cluster(2), [0, 0, 1, 1])
    picture = timeline.image(70, 10)
    assert picture.shape == (30, 70, 3)
    assert picture.dtype == np.uint8
    assert (picture[0, 0] != picture[0, 20]).any()  # a, then b


def test_a_step_that_takes_no_time_can_be_drawn() -> None:
    timeline = Simulator(Problem(toy_graph([0, 0], [(0, 1)]), toy_cluster(1))).timeline([0, 0])
    assert timeline.step_seconds == 0
    assert timeline.draw(12).startswith("gpu:0 |....|")
    assert timeline.image(8, 2).shape == (2, 8, 3)
