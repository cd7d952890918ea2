"""Problems of other papers on placement, run as these simulate: first come, first served, and links never wait.

- The graphs of DOPPLER (Yao et al., ICLR 2026), products of matrices and parts of Transformers in tiles, as the files
  of https://github.com/xinyuyao/Doppler have them (`compute_graph/`, CC BY 4.0), on four equal devices.
- Random programs on random networks of unlike devices, drawn as GiPH has them (Hu et al., MLSys 2023,
  https://github.com/uidmice/placement-rl): dense graphs, and each op may run on some kinds of devices alone.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from graphs.cluster import FREE, Cluster, Device
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem
from graphs.runtime import runtime_of

PER_SECOND = 1e10  # of what DOPPLER's files count, of computing and of transfers
DEVICES = 4  # of DOPPLER's simulator
OPS, UNLIKE, KINDS = 20, 20, 4  # of GiPH's programs; of the devices of its networks, and of kinds of these
DENSE = 0.8  # share of the pairs of ops that are joined
MILLI = 1e-3  # seconds of what GiPH counts


def doppler_problem(path: Path) -> Problem:
    """A graph of DOPPLER's repository: sources, targets, and what each op computes and a transfer of its output takes.

    Raises InputError for a file that is none.
    """
    rows = [[int(word) for word in re.findall(r"\d+", line)] for line in path.read_text("utf-8").splitlines()]
    if len(rows) < 4 or len(rows[2]) != len(rows[3]) or rows[0] != [len(rows[1]) + len(rows) - 4]:
        raise InputError(
            f"{path} is no graph of DOPPLER: its lines are to be the number of nodes, the inputs, the producers and "
            "the consumers of edges, and two costs for each node that is no input"
        )
    costs = np.array(rows[4:], np.float64)
    graph = _graph(path.stem, costs[:, 0], np.array([rows[2], rows[3]]).T, output_bytes=costs[:, 1])
    apart = np.ones((DEVICES, DEVICES))
    return _problem(graph, "doppler", PER_SECOND * np.ones(DEVICES), 0 * apart, PER_SECOND * apart)


def giph_problem(seed: int) -> Problem:
    """A random program on a random network, both of GiPH's kind; one of its costs is a millisecond."""
    rng = np.random.default_rng(seed)
    slow = rng.permutation(UNLIKE) < UNLIKE // 2
    delay = rng.uniform(5, 10, UNLIKE) + np.where(slow, rng.uniform(10, 20, UNLIKE), 0.0)
    rate = np.where(slow, rng.uniform(20, 50, UNLIKE), rng.uniform(100, 200, UNLIKE))
    speed = rng.uniform(1, 3, UNLIKE)
    seconds_per_byte = MILLI * (1 / rate[:, None] + 1 / rate + 0.2)
    edges = _dense_edges(rng)
    kind_of = rng.integers(KINDS, size=UNLIKE)
    allowed = [_allowed(rng, kind_of) for _ in range(OPS)]
    for op in (0, -1):  # what the program begins and ends with has its place
        allowed[op] = (str(rng.choice(allowed[op])),)
    graph = _graph(
        f"giph:number={seed}", rng.exponential(100.0, OPS), np.argwhere(edges), devices=tuple(allowed),
        edge_bytes=rng.uniform(500.0, 1000.0, int(edges.sum())),
    )  # fmt: skip
    return _problem(graph, "unlike", speed / MILLI, MILLI * (delay[:, None] + delay + 30), 1 / seconds_per_byte)


def _dense_edges(rng: np.random.Generator) -> Bools:
    """(ops, ops) whether the one gives something to the other; all follow from the first op, and lead to the last."""
    edges = np.triu(rng.random((OPS, OPS)) < DENSE, 1)
    edges[[0, -1]] = edges[:, [0, -1]] = False
    inner = np.arange(1, OPS - 1)
    edges[0, inner] = ~edges[:, inner].any(axis=0)
    edges[inner, -1] = ~edges[inner].any(axis=1)
    return edges


def _allowed(rng: np.random.Generator, kind_of: Ints) -> tuple[str, ...]:
    """The devices of one to three of the kinds; half of the devices where there are none of these."""
    kinds = rng.integers(KINDS, size=KINDS // 2 + int(rng.integers(2)) - int(rng.integers(2)))
    found = np.flatnonzero(np.isin(kind_of, kinds))
    return tuple(f"gpu:{i}" for i in (found if len(found) else rng.permutation(UNLIKE)[: UNLIKE // 2]).tolist())


def _graph(name: str, costs: Floats, edges: Ints, **options: object) -> OpGraph:
    """A graph of ops with costs, (ops,), and (edges, 2) edges."""
    ops, none = len(costs), np.zeros(len(costs))
    names = tuple(f"op{i}" for i in range(ops))
    outputs = {"output_bytes": none} | options
    return OpGraph(name, names, ("op",) * ops, flops=costs, bytes_accessed=none, edges=edges, **outputs)  # type: ignore[arg-type]


def _problem(graph: OpGraph, name: str, speed: Floats, latency: Floats, bandwidth: Floats) -> Problem:
    """On devices of (devices,) speeds, by which the costs of ops are divided, and links, (devices, devices)."""
    devices = tuple(Device(f"gpu:{i}", "gpu", each, each, np.inf) for i, each in enumerate(speed.tolist()))
    cluster = Cluster(name, devices, latency, bandwidth, np.full(latency.shape, FREE))
    seconds = graph.flops[:, None] / speed
    return Problem(graph, cluster, op_seconds=seconds, runtime=runtime_of("ideal:order=fifo"))
