"""A simulated step as Chakra execution traces: a file for each device, for simulators of networks such as ASTRA-sim.

An op is a COMP_NODE with how long it took. What another device reads is a pair of nodes, which say from where to where,
how many bytes, and which message it is; an all-reduce is a node of each member, which say how many bytes are summed up:

    rank 0   COMP a  ->  SEND a (to 1, tag 0)                 data dependencies: what must have ended before
    rank 1               RECV a (from 0, tag 0)  ->  COMP b   control dependencies: what the device ran before

A dependency that only orders ops is of both kinds, and has a message of no bytes if they are on two devices. Durations
are in microseconds, as the format has them; the attribute `seconds` is exact. Names of attributes are those that
MLCommons' feeder reads (src/feeder/et_feeder_node.cpp in github.com/mlcommons/chakra). The members of a process group
are in the metadata of each file: "process_group_1" is "0,1".
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from envs.files.all_reduces import AllReduce, all_reduces
from envs.timelines.timeline import Timeline
from graphs.formats.chakra import KIND, SECONDS
from graphs.formats.chakra_messages import VERSION, Message, attribute, new, written
from graphs.formats.chakra_nodes import Collective, NodeType
from graphs.op_graph import Ints


class _SentMessage(NamedTuple):
    """What one device sends to another."""

    producer: int
    source: int
    reader: int
    bytes: float
    start: float  # seconds
    finish: float  # seconds


def chakra_traces(timeline: Timeline) -> list[bytes]:
    """The file of each device, in the order of the cluster."""
    traces = _Traces(timeline)
    nodes = traces.nodes()
    groups = [attribute(f"process_group_{name}", "string_val", ranks) for ranks, name in traces.groups.items()]
    head = new("GlobalMetadata", version=VERSION, attr=[attribute("schema", "string_val", "placelab"), *groups])
    return [written([head, *of_device]) for of_device in nodes]


class _Traces:
    """The nodes of all devices. An op's id is its number, and that of an all-reduce is the number of its sum."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.graph, self.reduces = timeline, timeline.graph, all_reduces(timeline)
        self.of = np.full(len(self.graph), -1)  # (ops,) the all-reduce that each is of
        for number, each in enumerate(self.reduces):
            self.of[list(each.ops)] = number
        self.groups: dict[str, str] = {}  # by the ranks of each group its name
        self.sent, self.tag_of_edge = self._sent()

    def nodes(self) -> list[list[Message]]:
        """Of each device the nodes."""
        own = {op: self._computed(op) for op in np.flatnonzero(self.of < 0).tolist()}
        for tag, reduce in enumerate(self.reduces):
            own |= {op: self._reduced(reduce, device, tag) for device, op in reduce.sum_of.items()}
        self._connect(own)
        nodes = [[own[op] for op in self._on(device) if op in own] for device in range(len(self.timeline.peak_bytes))]
        for tag, each in enumerate(self.sent):
            for device, node in zip((each.source, each.reader), self._pair(tag, each), strict=True):
                nodes[device].append(node)
        return nodes

    def _connect(self, own: dict[int, Message]) -> None:
        """Say what the node of each op depends on."""
        graph, placement = self.graph, self.timeline.placement
        rows = zip(*graph.edges.T.tolist(), graph.control.tolist(), self.tag_of_edge.tolist(), strict=True)
        for producer, consumer, control, tag in rows:
            reduce = int(self.of[consumer])
            if reduce >= 0 and reduce == self.of[producer]:
                continue
            node = own[consumer if reduce < 0 else self.reduces[reduce].sum_of[int(placement[consumer])]]
            depends = producer if tag < 0 else self._ids(tag)[1]
            if depends not in node.data_deps:
                node.data_deps.append(depends)
            if control and depends not in node.ctrl_deps:
                node.ctrl_deps.append(depends)
        takes = self.timeline.finish > self.timeline.start  # what takes no time waits for no device
        for device in range(len(self.timeline.peak_bytes)):
            ops = [op for op in self._on(device) if self.of[op] < 0 and takes[op]]
            for before, op in pairwise(ops):
                if before not in own[op].data_deps:
                    own[op].ctrl_deps.append(before)

    def _on(self, device: int) -> list[int]:
        """The ops of a device, in the order in which it ran them."""
        ops, timeline = np.flatnonzero(self.timeline.placement == device), self.timeline
        order = np.lexsort((self.graph.topological_position[ops], timeline.finish[ops], timeline.start[ops]))
        return list(ops[order].tolist())

    def _sent(self) -> tuple[list[_SentMessage], Ints]:
        """What is sent, but for all-reduces, and (edges,) by what of it each edge is carried; -1 within a device."""
        graph, moved, placement = self.graph, self.timeline.transfers, self.timeline.placement
        columns = (moved.producer, moved.source, moved.destination, graph.moved_bytes[moved.output], moved.start)
        kept = np.flatnonzero(self.of[moved.producer] < 0)
        sent = [
            _SentMessage(*row) for row in zip(*(each[kept].tolist() for each in (*columns, moved.finish)), strict=True)
        ]
        keys = zip(moved.output[kept].tolist(), moved.destination[kept].tolist(), strict=True)
        arrival = {key: tag for tag, key in enumerate(keys)}
        found = np.full(len(graph.edges), -1)
        leaves = np.diff(placement[graph.edges], axis=1)[:, 0] != 0
        for edge in np.flatnonzero(leaves & (self.of[graph.edges[:, 0]] < 0)).tolist():
            producer, consumer = graph.edges[edge].tolist()
            reader, at = int(placement[consumer]), float(self.timeline.finish[producer])
            if not graph.control[edge]:
                found[edge] = arrival[int(self.timeline.edge_output[edge]), reader]
                continue
            found[edge] = len(sent)
            sent.append(_SentMessage(producer, int(placement[producer]), reader, 0.0, at, at))
        return sent, found

    def _computed(self, op: int) -> Message:
        start, finish = float(self.timeline.start[op]), float(self.timeline.finish[op])
        node = self._node(op, self.graph.names[op], NodeType.COMP_NODE, start, finish)
        on_host = self.timeline.problem.cluster.devices[self.timeline.placement[op]].kind == "cpu"
        node.attr.extend([
            attribute("is_cpu_op", "bool_val", on_host), attribute(KIND, "string_val", self.graph.kinds[op]),
            attribute("num_ops", "int64_val", round(float(self.graph.flops[op]))),
            attribute("tensor_size", "uint64_val", round(float(self.graph.output_bytes[op]))),
        ])  # fmt: skip
        return node

    def _reduced(self, reduce: AllReduce, device: int, tag: int) -> Message:
        """The node of a member."""
        op, ops = reduce.sum_of[device], [each for each in reduce.ops if self.timeline.placement[each] == device]
        start, finish = float(self.timeline.start[ops].min()), float(self.timeline.finish[op])
        node = self._node(op, self.graph.names[op], NodeType.COMM_COLL_NODE, start, finish)
        ranks = ",".join(map(str, sorted(reduce.sum_of)))
        node.attr.extend([
            attribute("is_cpu_op", "bool_val", False), attribute("comm_type", "int64_val", int(Collective.ALL_REDUCE)),
            attribute("comm_size", "int64_val", round(reduce.bytes)), attribute("comm_tag", "int32_val", tag),
            attribute("pg_name", "string_val", self.groups.setdefault(ranks, str(len(self.groups) + 1))),
        ])  # fmt: skip
        return node

    def _pair(self, tag: int, sent: _SentMessage) -> tuple[Message, Message]:
        """The node that sends, and the one that receives."""
        what = self.graph.names[sent.producer]
        source, reader = (self.timeline.problem.cluster.devices[each].name for each in (sent.source, sent.reader))
        first, second = self._ids(tag)
        send = self._node(first, f"{what} to {reader}, {tag}", NodeType.COMM_SEND_NODE, sent.start, sent.finish)
        receive = self._node(second, f"{what} from {source}, {tag}", NodeType.COMM_RECV_NODE, sent.start, sent.finish)
        send.data_deps.append(sent.producer)
        for node in (send, receive):
            node.attr.extend([
                attribute("is_cpu_op", "bool_val", False),
                attribute("comm_src", "int32_val", sent.source), attribute("comm_dst", "int32_val", sent.reader),
                attribute("comm_tag", "int32_val", tag), attribute("comm_size", "int64_val", round(sent.bytes)),
            ])  # fmt: skip
        return send, receive

    def _ids(self, tag: int) -> tuple[int, int]:
        """Those of the nodes that send and receive a message."""
        return len(self.graph) + 2 * tag, len(self.graph) + 2 * tag + 1

    def _node(self, number: int, name: str, kind: NodeType, start: float, finish: float) -> Message:
        micros = {"start_time_micros": round(1e6 * start), "duration_micros": round(1e6 * (finish - start))}
        exact = attribute(SECONDS, "double_val", finish - start)
        return new("Node", id=number, name=name, type=int(kind), attr=[exact], **micros)
