"""How long it takes to find by which index every op is divided, in Tofu's two networks, for eight devices."""

from __future__ import annotations

import time
from collections.abc import Iterator

from placers.splitting.cuts import Cuts, joint, recursive, refined
from placers.splitting.options import TOFU, Splitting
from placers.splitting.pricing import Prices, Pricing
from placers.splitting.split_graph import SplitGraph
from tests.benchmarks.figures import Figure, at_most, reported
from tests.placers.splitting.networks import lstm, wide_resnet

MESH = (2, 2, 2)
PUBLISHED = {"WResNet-152-10": 8.3, "RNN-10": 66.6}  # seconds (Wang et al. 2019, section 7)


def measure(networks: dict[str, SplitGraph] | None = None) -> Iterator[Figure]:
    """Processor seconds of three cuts under Tofu's rules and costs, and what the recursion costs above the optimum."""
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


def three_cuts(name: str, graph: SplitGraph) -> tuple[Figure, Pricing, Cuts]:
    """How long one cut after the other takes."""
    begin = time.process_time()
    pricing = Pricing(Splitting(graph, MESH, TOFU), Prices.elements(len(MESH)))
    cuts = recursive(pricing)
    seconds = time.process_time() - begin
    published = f"; published {PUBLISHED[name]} s" if name in PUBLISHED else ""
    return at_most(2.0, f"{name}: three cuts of {len(graph.ops):,} ops{published}", seconds, "s"), pricing, cuts
