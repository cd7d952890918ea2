"""How long it takes to find by which index every op is divided, for eight devices: in Tofu's networks, and in a GPT."""

from __future__ import annotations

import time
from collections.abc import Iterator

from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.splits.cuts import SplitAssignment, joint, recursive, refined, searched
from placers.splits.described_step import split_graph_of
from placers.splits.mesh import prices_of_links
from placers.splits.options import TOFU, Splitting
from placers.splits.pricing import Prices, Pricing
from placers.splits.split_graph import SplitGraph
from tests.benchmarks.figures import Figure, at_most, reported
from tests.placers.splits.networks import lstm, wide_resnet

MESH = (2, 2, 2)
PUBLISHED = {"WResNet-152-10": 8.3, "RNN-10": 66.6}  # seconds (Wang et al. 2019, section 7)


def measure(
    networks: dict[str, SplitGraph] | None = None, captured: str = "transformer:layers=48,batch=32"
) -> Iterator[Figure]:
    """Processor seconds of three cuts under Tofu's rules and costs, and what the recursion costs above the optimum.

    Then of the best cuts of a captured step, by seconds on links.
    """
    yield cuts_of_captured(captured)
    if networks is None:
        yield three_cuts("WResNet-152-10, gradients apart", wide_resnet())[0]
        networks = {"WResNet-152-10": wide_resnet(coarsened=True), "RNN-10": lstm()}
    for name, graph in networks.items():
        figure, pricing, cuts = three_cuts(name, graph)
        yield figure
        begin = time.process_time()
        best = joint(pricing)
        yield reported(f"{name}: all cuts at once", time.process_time() - begin, "s")
        better = refined(pricing, cuts)
        yield reported(f"{name}: one cut after the other above the optimum", 100 * (cuts.cost / best.cost - 1), "%")
        yield reported(f"{name}: and then each again", 100 * (better.cost / best.cost - 1), "%")


def cuts_of_captured(graph: str) -> Figure:
    """How long it takes to find the best cuts of a captured step, from its descriptions on."""
    problem = Problem(load_graph(graph), load_cluster("v100_servers:servers=1,devices=8"))
    begin = time.process_time()
    pricing = Pricing(Splitting(split_graph_of(problem), MESH), prices_of_links(problem.cluster, range(8), MESH))
    searched(pricing)
    return at_most(10.0, f"{graph}: best cuts of {len(problem.graph):,} ops", time.process_time() - begin, "s")


def three_cuts(name: str, graph: SplitGraph) -> tuple[Figure, Pricing, SplitAssignment]:
    """How long one cut after the other takes."""
    begin = time.process_time()
    pricing = Pricing(Splitting(graph, MESH, TOFU), Prices.elements(len(MESH)))
    cuts = recursive(pricing)
    seconds = time.process_time() - begin
    published = f"; published {PUBLISHED[name]} s" if name in PUBLISHED else ""
    return at_most(2.0, f"{name}: three cuts of {len(graph.ops):,} ops{published}", seconds, "s"), pricing, cuts
