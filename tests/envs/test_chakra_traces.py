"""Simulated steps as Chakra execution traces: everything is there, what depends waits, and simulators can replay it."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import placelab
from envs.files.all_reduces import all_reduces
from envs.files.chakra_traces import chakra_traces
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce, Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.files.load import load_cluster
from graphs.formats.chakra import SECONDS, load_chakra
from graphs.formats.chakra_messages import attributes, nodes_of
from graphs.formats.chakra_nodes import NodeType
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.random_plans import planned
from tests.oracle.toys import toy_cluster, toy_graph

Nodes = dict[tuple[int, int], Any]  # by rank and id


def parsed(timeline: Timeline) -> Nodes:
    busy = [(rank, raw) for rank, raw in enumerate(chakra_traces(timeline)) if rank in timeline.placement]
    return {(rank, node.id): node for rank, raw in busy for node in nodes_of(Path("x.et"), raw)}


def paired(nodes: Nodes) -> dict[tuple[int, int], tuple[int, int]]:
    """What sends each message, by what receives it; checks that both say the same."""
    sends, receives = (
        {attributes(node)["comm_tag"]: key for key, node in nodes.items() if node.type == kind}
        for kind in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
    )
    assert sends.keys() == receives.keys()
    for tag, key in sends.items():
        about, other = attributes(nodes[key]), attributes(nodes[receives[tag]])
        assert {name: about[name] for name in about if "comm" in name} == {
            name: other[name] for name in other if "comm" in name
        }
        assert (about["comm_src"], about["comm_dst"]) == (key[0], receives[tag][0])
    return {receives[tag]: key for tag, key in sends.items()}


def reducing(nodes: Nodes) -> dict[tuple[int, int], list[tuple[int, Any]]]:
    """The ranks and nodes of all members of each all-reduce, by each of them; checks that they say the same."""
    found: dict[object, list[tuple[int, Any]]] = {}
    for (rank, _), node in nodes.items():
        if node.type == NodeType.COMM_COLL_NODE:
            about = attributes(node)
            key = tuple(about[name] for name in ("comm_tag", "comm_type", "comm_size", "pg_name"))
            found.setdefault(key, []).append((rank, node))
    assert len({key[0] for key in found}) == len(found)  # type: ignore[index]
    return {(rank, node.id): several for several in found.values() for rank, node in several}


def replayed(nodes: Nodes) -> dict[tuple[int, int], float]:
    """When each node has ended if it starts once all it depends on has, and messages never wait for each other."""
    sent, members, ended = paired(nodes), reducing(nodes), dict[tuple[int, int], float]()

    def end(key: tuple[int, int]) -> float:
        stack = [key]
        while stack:
            rank, number = stack[-1]
            node = nodes[rank, number]
            waits = [(rank, each) for each in {*node.data_deps, *node.ctrl_deps}]
            waits += [sent[rank, number]] if (rank, number) in sent else []
            waits += [(other, each) for other, peer in members.get((rank, number), []) for each in peer.data_deps]
            missing = [each for each in waits if each not in ended]
            assert len(stack) <= len(nodes), "a circle"
            if missing:
                stack.append(missing[0])
                continue
            begins = max((ended[each] for each in waits), default=0.0)
            is_message = (rank, number) in sent or (rank, number) in members
            ended[stack.pop()] = begins if is_message else begins + float(attributes(node)[SECONDS])
        return ended[key]

    return {key: end(key) for key in nodes}


@settings(max_examples=examples(40, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_traces_hold_the_whole_step_and_can_be_replayed(case: tuple[Problem, Plan]) -> None:
    timeline = simulate(*case)
    graph, nodes = timeline.problem.graph, parsed(timeline)
    ops = {key: node for key, node in nodes.items() if node.type == NodeType.COMP_NODE}
    folded = {op for reduce in all_reduces(timeline) for op in reduce.ops}
    left = [op for op in range(len(graph)) if op not in folded]
    assert sorted(ops) == sorted((int(timeline.placement[op]), op) for op in left)
    for (_, op), node in ops.items():
        assert attributes(node)[SECONDS] == timeline.finish[op] - timeline.start[op]
    sent = paired(nodes)
    carried = sorted(attributes(nodes[key])["comm_size"] for key in sent)
    control = int((graph.control & (np.diff(timeline.placement[graph.edges])[:, 0] != 0)).sum())
    outputs = timeline.transfers.output[~np.isin(timeline.transfers.producer, list(folded))]
    moved = np.round(graph.moved_bytes[outputs]).astype(int).tolist()
    assert carried == sorted([0] * control + moved)
    for edge, (producer, consumer) in enumerate(graph.edges.tolist()):
        if producer in folded or consumer in folded:
            continue
        rank, reader = int(timeline.placement[producer]), int(timeline.placement[consumer])
        deps = ops[reader, consumer].data_deps
        waits = {producer} if rank == reader else {
            key[1] for key, by in sent.items() if key[0] == reader and producer in nodes[by].data_deps and by[0] == rank
        }  # fmt: skip
        assert waits & set(deps)
        assert not graph.control[edge] or waits & set(ops[reader, consumer].ctrl_deps)
    ends = replayed(nodes)
    for op in [*left, *(op for reduce in all_reduces(timeline) for op in reduce.sum_of.values())]:
        assert ends[int(timeline.placement[op]), op] <= timeline.finish[op] * (1 + 1e-9)


def test_a_step_by_hand(tmp_path: Path) -> None:
    graph = toy_graph([3.0, 2.0, 5.0], [(0, 1), (0, 2)])
    problem = Problem(graph, toy_cluster(2))
    timeline = simulate(problem, Plan.of([0, 0, 1]))
    first, second = (nodes_of(Path("x.et"), raw) for raw in chakra_traces(timeline))
    assert [(node.name, NodeType(node.type).name) for node in first] == [
        ("a", "COMP_NODE"), ("b", "COMP_NODE"), ("a to gpu:1, 0", "COMM_SEND_NODE"),
    ]  # fmt: skip
    assert [(node.name, NodeType(node.type).name) for node in second] == [
        ("c", "COMP_NODE"), ("a from gpu:0, 0", "COMM_RECV_NODE"),
    ]  # fmt: skip
    a, b, send = first
    c, receive = second
    assert (list(b.data_deps), list(send.data_deps), list(c.data_deps)) == ([a.id], [a.id], [receive.id])
    for rank, raw in enumerate(chakra_traces(timeline)):
        (tmp_path / f"mine.{rank}.et").write_bytes(raw)
    again = load_chakra(tmp_path / "mine.0.et")
    assert again.kinds == (*graph.kinds[:2], "COMM_SEND_NODE")
    assert again.measured_seconds[:2].tolist() == (timeline.finish - timeline.start)[:2].tolist()
    assert again.edges.tolist() == [[0, 1], [0, 2]]
    placed = placelab.place(again, cluster="p100x2", placer="single_device", groups=None)
    assert placed.timeline.step_seconds == pytest.approx(5.0, rel=1e-5)  # what is sent goes beside b


@pytest.mark.parametrize("kind", get_args(AllReduce))
def test_an_all_reduce_is_a_node_of_each_member(kind: AllReduce) -> None:
    graph = Pipeline(1, 1, weights=20.0).graph()
    cluster = load_cluster("v100_servers:servers=2,devices=2") if kind == "hierarchical" else servers(4)
    problem = Problem(graph, cluster, "adam")
    devices = ((0, 1, 2, 3),) * len(graph)
    timeline = simulate(problem, Plan(devices, schedule=Schedule(all_reduce=kind, bucket_bytes=1e9)))
    (found,) = all_reduces(timeline)
    trained = graph.trained_weights.sum()
    assert found.bytes == pytest.approx(trained)
    nodes = parsed(timeline)
    reduced = {key: node for key, node in nodes.items() if node.type == NodeType.COMM_COLL_NODE}
    assert sorted(rank for rank, _ in reduced) == [0, 1, 2, 3]
    for (rank, number), node in reduced.items():
        about = attributes(node)
        assert (about["comm_type"], about["comm_size"], about["pg_name"]) == (0, round(trained), "1")
        updates = [each.id for (other, _), each in nodes.items() if other == rank and number in each.data_deps]
        assert {timeline.problem.graph.kinds[update] for update in updates} == {"toy.update"}
    assert not [node for node in nodes.values() if node.type == NodeType.COMM_SEND_NODE]


def test_the_verb_writes_a_file_for_each_device(tmp_path: Path) -> None:
    placed = placelab.place("rnnlm:layers=2,steps=3", cluster="p100x2", placer="round_robin")
    exported = placelab.export(
        "rnnlm:layers=2,steps=3", placed.plan, cluster="p100x2", to="chakra", out=tmp_path / "step"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.0.et", "step.1.et"]
    assert exported.cost_seconds == 0.0
    graphs = [load_chakra(tmp_path / f"step.{rank}.et") for rank in range(2)]
    ops = sum(kind not in ("COMM_SEND_NODE", "COMM_RECV_NODE") for graph in graphs for kind in graph.kinds)
    assert ops == len(placed.problem.graph)
    with pytest.raises(placelab.InputError, match="say with `out` what their names begin with"):
        placelab.export("rnnlm:layers=2,steps=3", placed.plan, cluster="p100x2", to="chakra")
