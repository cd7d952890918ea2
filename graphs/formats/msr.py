"""Workloads of "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020).

The JSON of github.com/msr-fiddle/dnn-partitioning: nodes with a latency on a CPU and on an accelerator, a size, a
colour class (nodes of one share a device) and whether they are backward; edges with the time that moves the output
between an accelerator and host memory. Times are taken to be milliseconds, sizes bytes. Only sizes take memory: what a
transfer moves is known as a time alone, and occupies nothing.
"""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from graphs.cluster import Cluster, Device, check_count
from graphs.foundation.documents import read_document, read_file
from graphs.foundation.errors import InputError
from graphs.op_graph import MOST, Floats, OpGraph, Phase
from graphs.problem import Problem

BYTES_PER_SECOND = 1e9  # of a link of the problem: the file gives times, so that only the product matters


class WorkloadNode(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One node, with the file's names."""

    id: int
    name: str
    supportedOnFpga: bool | int  # noqa: N815
    cpuLatency: float  # noqa: N815
    fpgaLatency: float  # noqa: N815
    isBackwardNode: bool | int  # noqa: N815
    size: float
    colorClass: int | None = None  # noqa: N815
    layerId: int | None = None  # noqa: N815


class Edge(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One edge, with the file's names."""

    sourceId: int  # noqa: N815
    destId: int  # noqa: N815
    cost: float
    size: float | None = None  # not used by any of the paper's algorithms


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a file holds."""

    maxSizePerFPGA: float  # noqa: N815  # bytes
    maxFPGAs: int  # noqa: N815
    maxCPUs: int  # noqa: N815
    nodes: list[WorkloadNode]
    edges: list[Edge]

    @property
    def send_seconds(self) -> Floats:
        """(nodes,) seconds to move the output of each between an accelerator and host memory."""
        index = self._index()
        seconds = np.zeros(len(self.nodes))
        for edge in self.edges:
            seconds[index[edge.sourceId]] = edge.cost / 1e3
        return seconds

    def graph(self, name: str) -> OpGraph:
        """The nodes as ops, with their seconds on an accelerator and on a CPU. Raises InputError for a cycle."""
        nodes, index = self.nodes, self._index()
        classes = {colour: number for number, colour in enumerate(dict.fromkeys(n.colorClass for n in nodes))}
        held = np.flatnonzero([node.size > 0 for node in nodes])
        return OpGraph(
            name,
            tuple(f"{node.name}.{node.id}" for node in nodes),
            tuple(node.name.rstrip("0123456789") or "node" for node in nodes),
            flops=np.zeros(len(nodes)),
            bytes_accessed=np.zeros(len(nodes)),
            output_bytes=np.zeros(len(nodes)),
            transfer_bytes=self.send_seconds * BYTES_PER_SECOND,
            edges=np.array([(index[e.sourceId], index[e.destId]) for e in self.edges], np.int64).reshape(-1, 2),
            weights=np.array([nodes[i].size for i in held]),
            weight_uses=np.stack([held, np.arange(len(held))], axis=1),
            phase=np.array([Phase.BACKWARD if node.isBackwardNode else Phase.FORWARD for node in nodes]),
            group=np.array([-1 if node.colorClass is None else classes[node.colorClass] for node in nodes]),
            measured_on={
                "gpu": np.array([node.fpgaLatency for node in nodes]) / 1e3,
                "cpu": np.array([node.cpuLatency for node in nodes]) / 1e3,
            },
            devices=tuple(() if node.supportedOnFpga else ("cpu",) for node in nodes),
        )

    def problem(self, name: str) -> Problem:
        """The graph on the file's accelerators, "gpu:0", ..., and CPUs.

        A transfer between two accelerators goes through host memory and takes twice as long. Raises InputError for a
        cycle, and for a node that only a CPU can run if there is none.
        """
        graph = self.graph(name)
        gpus = (Device(f"gpu:{i}", "gpu", 1.0, 1.0, self.maxSizePerFPGA) for i in range(self.maxFPGAs))
        cpus = (Device(f"cpu:{i}", "cpu", 1.0, 1.0, math.inf) for i in range(self.maxCPUs))
        devices = (*gpus, *cpus)
        is_gpu = np.array([device.kind == "gpu" for device in devices])
        pairs = np.ones((len(devices), len(devices)))
        cluster = Cluster(
            f"{self.maxFPGAs} accelerators and {self.maxCPUs} CPUs",
            devices,
            latency=0 * pairs,
            bandwidth=np.where(is_gpu[:, None] & is_gpu, BYTES_PER_SECOND / 2, BYTES_PER_SECOND),
            channel=np.arange(len(devices) ** 2).reshape(pairs.shape),
        )
        return Problem(graph, cluster, "none", timed_by="recorded")

    def _index(self) -> dict[int, int]:
        return {node.id: position for position, node in enumerate(self.nodes)}


class Probe(msgspec.Struct, frozen=True):
    """The field by which a workload differs from other JSON files."""

    maxFPGAs: Any = None  # noqa: N815


def is_workload(path: Path) -> bool:
    """Whether a file is a workload, perhaps a damaged one; false for what cannot be read."""
    try:
        return path.suffix == ".json" and msgspec.json.decode(read_file(path, ""), type=Probe).maxFPGAs is not None
    except (ValueError, RecursionError):  # the reader of the other formats says what is wrong with it
        return False


def load_workload(path: Path) -> Workload:
    """Read a workload. Raises InputError, naming the place, for a file that is missing or makes no sense."""
    content = read_document(path, Workload, version=1, remedy="it comes from github.com/msr-fiddle/dnn-partitioning")
    ids = {node.id for node in content.nodes}
    if len(ids) < len(content.nodes) or not ids:
        raise InputError(f"{path}: nodes: expected at least one, each with an id of its own")
    if content.maxFPGAs < 0 or content.maxCPUs < 0 or content.maxFPGAs + content.maxCPUs < 1:
        raise InputError(f"{path}: {content.maxFPGAs} accelerators and {content.maxCPUs} CPUs; expected at least one")
    check_count(str(path), content.maxFPGAs + content.maxCPUs)
    for i, node in enumerate(content.nodes):
        for key in ("cpuLatency", "fpgaLatency", "size"):
            if not 0 <= getattr(node, key) <= MOST:
                raise InputError(f"{path}: nodes[{i}].{key}: expected a number >= 0, got {getattr(node, key)}")
    for i, edge in enumerate(content.edges):
        if not 0 <= edge.cost <= MOST:
            raise InputError(f"{path}: edges[{i}].cost: expected a number >= 0, got {edge.cost}")
        for end in (edge.sourceId, edge.destId):
            if end not in ids:
                raise InputError(f"{path}: edges[{i}]: no node has the id {end}")
    return content
