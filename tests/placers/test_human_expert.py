"""The human expert reads layers from names."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.op_groups.layer_names import op_layers
from graphs.problem import Problem
from placers.human_expert import HumanExpert, has_branches, in_order
from tests.oracle.toys import toy_cluster


def named(*names: str, edges: Sequence[tuple[int, int]], flops: Sequence[float] = ()) -> OpGraph:
    """Ops of the given names, each of one second unless given."""
    ones = np.ones(len(names))
    return OpGraph("named", names, ("any",) * len(names), np.array(flops or ones), 0 * ones, ones, np.array(edges))


def chain(*names: str, kinds: Sequence[str] = (), weight: float = 0.0) -> OpGraph:
    """Ops of the given names, one after the other, each with a weight."""
    graph = named(*names, edges=[(i, i + 1) for i in range(len(names) - 1)])
    uses = np.stack([np.arange(len(names))] * 2, axis=1)
    weights = np.full(len(names), weight)
    return replace(graph, kinds=tuple(kinds) or graph.kinds, weights=weights, weight_uses=uses)


def free_links(*devices: Device) -> Cluster:
    """A cluster whose links cost next to nothing."""
    square = (len(devices), len(devices))
    return Cluster("free", devices, np.zeros(square), np.ones(square), np.zeros(square, np.int64))


def layered(layers: int) -> OpGraph:
    """An embedding, layers of two ops, a head and a loss."""
    body = [f"layers.{i}.{part}" for i in range(layers) for part in ("attention/addmm", "mlp.0/relu")]
    return chain("embedding/embedding", *body, "head/addmm", "/loss")


def placed(graph: OpGraph, cluster: Cluster) -> list[int]:
    """The devices that the expert chooses."""
    devices: list[int] = HumanExpert().place(Problem(graph, cluster)).plan.placement.tolist()
    return devices


def test_layers_are_split_evenly_in_order() -> None:
    assert placed(layered(4), toy_cluster(2)) == [0, *[0] * 4, *[1] * 4, 1, 1]
    assert placed(layered(8), toy_cluster(4)) == [0, *np.repeat([0, 1, 2, 3], 4).tolist(), 3, 3]


def test_fewer_layers_than_devices_take_one_each() -> None:
    assert placed(layered(2), toy_cluster(4)) == [0, 0, 0, 1, 1, 1, 1]


def test_an_unrolled_net_keeps_each_layer_together() -> None:
    names = [f"{part}_{t}" for t in range(3) for part in ("embedding/e", "layers.0/cell", "layers.1/cell", "head/mm")]
    edges = [(4 * t + i, 4 * t + i + 1) for t in range(3) for i in range(3)] + [(1, 5), (5, 9), (2, 6), (6, 10)]
    assert placed(named(*names, edges=edges), toy_cluster(2, memory=1e9)) == [0, 0, 1, 1] * 3


def test_encoder_and_decoder_are_layers_in_one_row() -> None:
    names = ["embedding/e", "encoder.layers.0/mm", "encoder.layers.1/mm"]
    names += ["target/e", "decoder.layers.0/mm", "decoder.layers.1/mm", "/loss"]
    edges = [(0, 1), (1, 2), (2, 4), (3, 4), (4, 5), (5, 6)]
    assert op_layers(named(*names, edges=edges)).tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_a_container_of_one_is_no_sequence_of_layers() -> None:
    assert op_layers(chain("net.0.layers.0/a", "net.0.layers.1/a", "net.0.layers.2/a")).tolist() == [0, 1, 2]
    assert len(op_layers(chain("net.0/a", "net.0/b", "head/c"))) == 0


def test_processors_are_left_out() -> None:
    cpu, *gpus = (Device(f"{kind}:{i}", kind, 9.0, 9.0, 1e9) for i, kind in enumerate(("cpu", "gpu", "gpu")))
    assert placed(layered(2), free_links(cpu, *gpus)) == [1, 1, 1, 2, 2, 2, 2]
    assert placed(layered(2), free_links(cpu)) == [0] * 7


BRANCHES = ("stem/conv", "blocks.0.branches.0/conv", "blocks.0.branches.1/conv", "blocks.1.branches.0/conv", "head/mm")


def test_branches_stay_on_one_device_if_they_fit() -> None:
    assert placed(chain(*BRANCHES, weight=10), toy_cluster(2)) == [0] * 5


@pytest.mark.parametrize("budget", [0, 1])
def test_branches_are_cut_in_order_if_they_do_not_fit(budget: int) -> None:
    result = HumanExpert().place(Problem(chain(*BRANCHES, weight=30), toy_cluster(2)), budget=budget)
    assert result.plan.placement.tolist() in ([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    assert result.simulations == budget


def test_a_net_of_convolutions_counts_as_one_with_branches() -> None:
    assert has_branches(chain("layers.0/a", "layers.1/b", kinds=("aten.convolution", "aten.convolution")))
    assert not has_branches(chain("patches/a", "layers.0/b", "layers.1/c", kinds=("aten.convolution", "mm", "mm")))


def test_without_layers_the_order_is_cut_by_compute() -> None:
    assert placed(chain("/a", "/b", "/c", "/d"), toy_cluster(2)) == [0, 0, 1, 1]


def test_pieces_follow_the_shares() -> None:
    pieces = in_order(np.array([3, 2, 1, 0]), np.ones(4), np.array([1.0, 3.0]))
    assert pieces.tolist() == [1, 1, 1, 0]
