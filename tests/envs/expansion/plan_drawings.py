"""The drawings of docs/plans.md, each under the comment that names it; `python -m tests.envs.expansion.plan_drawings`
writes them into the document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.simulation.step_shares import StepShares
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.devices.topology import Level, hierarchical
from graphs.problem import Problem
from tests.envs.drawings import drawn_rows
from tests.envs.expansion.divided_graphs import mlp
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped
from tests.envs.expansion.test_divided_bytes import columns_and_rows, moved_bytes
from tests.oracle.toys import toy_cluster

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "plans.md"
BLOCK = re.compile(r"<!-- drawn: (?P<name>[^\n]*) -->\n```text\n(?P<drawing>.*?)```\n", re.DOTALL)

ORDERS = {  # by the stages of a device
    "one stage each": ("gpipe", "early_backward_a", "early_backward_b", "zb_h1", "zb_h2"),
    "two, interleaved": ("looped_bfs", "interleaved", "interleaved_zero_bubble"),
    "two, as a V": ("zb_v", "dualpipe_v", "v_half", "v_min"),
}
ONE_EACH = Pipeline(4, 6, forward=1, backward=2)
APART = Pipeline(4, 6, forward=1, backward=1, weight_gradient=1)
LOOPED = Pipeline(4, 4)
APART_SENDING = Pipeline(4, 6, weight_gradient=1, activation=1 / 3, gradient=1 / 3)
V_SHAPED = Pipeline(4, 4, weight_gradient=1)
V_OF_FOUR = Pipeline(8, 4, weight_gradient=1)
SENDING = Pipeline(2, 5, activation=1, gradient=1)
RECOMPUTED = Pipeline(2, 4, backward=2)
SHARED = Pipeline(2, 4, forward=[2, 1], backward=[2, 1], activation=2 / 3, gradient=2 / 3)
SUMMED = Pipeline(1, 2, forward=4, backward=4, weights=2, update=1)
FLUSHLESS = Pipeline(2, 5, update=1)


def of(pipeline: Pipeline, order: str, columns: int, cluster: Cluster | None = None, **settings: object) -> str:
    """A pipeline under an order, at so many columns per second."""
    plan = pipeline.plan(order, **settings)  # type: ignore[arg-type]
    devices = 1 + max(max(several) for several in plan.devices)
    return drawing(simulate(pipeline.problem(cluster or servers(devices)), plan), columns)


def orders() -> str:
    """What each order makes of the same work: 4 devices, and a second each for F, I and W of a micro-batch."""
    whole = Pipeline(4, 8, weight_gradient=1, activation=1)
    halves = Pipeline(8, 8, forward=0.5, backward=0.5, weight_gradient=0.5, activation=0.5)
    ranks = {"one stage each": ((0,), (1,), (2,), (3,)), "two, interleaved": interleaved(4), "two, as a V": v_shaped(4)}
    rows = [f"{'order':<25}{'stages of a device':<20}{'step':<8}{'bubble':<9}peak, in activations of a micro-batch\n"]
    for hosted, names in ORDERS.items():
        pipeline = whole if hosted == "one stage each" else halves
        for name in names:
            timeline = simulate(pipeline.problem(servers(4)), pipeline.plan(name, ranks=ranks[hosted]))
            bubble = StepShares.of(timeline)["bubble"].mean() / timeline.step_seconds
            peaks = "  ".join(f"{peak:g}" for peak in timeline.peak_bytes.tolist())
            rows.append(f"{name:<25}{hosted:<20}{f'{timeline.step_seconds:g} s':<8}{f'{bubble:.0%}':<9}{peaks}\n")
    return "".join(rows)


def by_nccl() -> str:
    """The sum of gradients among two servers of two devices, on a network a quarter as fast as the links in them."""
    between, within = (Level(2, bandwidth, 0.0, "device") for bandwidth in (1.0, 4.0))
    cluster = hierarchical("two servers", toy_cluster(1).devices[0], (between, within))
    plan = SUMMED.plan(replicas=4)
    plan = replace(plan, schedule=replace(plan.schedule, all_reduce="nccl"))
    return drawing(simulate(SUMMED.problem(cluster), plan), 6)


def divided() -> str:
    """What dividing a perceptron of 5 layers of width 8192 moves and holds, a batch of 256."""
    graph = mlp([8192] * 6, 256).graph
    rows = [f"{'':<10}{'columns and rows':<28}the batch", f"{'devices':<10}" + f"{'moved':<12}{'peak':<16}" * 2]
    for devices in (2, 4, 8):
        row = f"{devices:<10}"
        for split in (columns_and_rows(graph), ((),) * len(graph)):
            plan = Plan((tuple(range(devices)),) * len(graph), split=split)
            timeline = simulate(Problem(graph, toy_cluster(devices, memory=1e12), optimizer="sgd"), plan)
            moved, peak = moved_bytes(timeline) / 1e9, float(timeline.peak_bytes.max()) / 1e9
            row += f"{f'{moved:.3g} GB':<12}{f'{peak:.3g} GB':<16}"
        rows.append(row)
    return "".join(f"{row.rstrip()}\n" for row in rows)


def drawing(timeline: Timeline, columns: int) -> str:
    """The rows of a timeline at so many columns per second."""
    return "".join(f"{row}\n" for row in drawn_rows(timeline, columns))


DRAWINGS: dict[str, Callable[[], str]] = {
    "gpipe": lambda: of(ONE_EACH, "gpipe", 3),
    "early_backward_a": lambda: of(ONE_EACH, "early_backward_a", 3),
    "zb_h1": lambda: of(APART, "zb_h1", 3),
    "transfers, zb_h1": lambda: of(APART_SENDING, "zb_h1", 3, servers(4, bandwidth=1)),
    "transfers, zb_h2": lambda: of(APART_SENDING, "zb_h2", 3, servers(4, bandwidth=1)),
    "interleaved": lambda: of(LOOPED, "interleaved", 4, ranks=interleaved(2)),
    "looped_bfs": lambda: of(LOOPED, "looped_bfs", 4, ranks=interleaved(2)),
    "interleaved_zero_bubble": lambda: of(V_SHAPED, "interleaved_zero_bubble", 4, ranks=interleaved(2)),
    "zb_v": lambda: of(V_SHAPED, "zb_v", 4, ranks=v_shaped(2)),
    "dualpipe_v": lambda: of(V_SHAPED, "dualpipe_v", 4, ranks=v_shaped(2)),
    "v_half": lambda: of(V_OF_FOUR, "v_half", 4, ranks=v_shaped(4)),
    "transfers, early_backward_a": lambda: of(SENDING, "early_backward_a", 3, servers(2, bandwidth=1)),
    "transfers, early_backward_b": lambda: of(SENDING, "early_backward_b", 3, servers(2, bandwidth=1)),
    "recomputation": lambda: of(RECOMPUTED, "early_backward_a", 3, recompute=(0, 1)),
    "replicas split": lambda: of(SHARED, "gpipe", 6, servers(3, bandwidth=1), replicas=(2, 1)),
    "replicas in turns": lambda: of(SHARED, "gpipe", 6, servers(3, bandwidth=1), replicas=(2, 1), sharing="turns"),
    "all-reduce": lambda: of(SUMMED, "as_ready", 6, servers(4, bandwidth=1), replicas=4),
    "all-reduce by NCCL": by_nccl,
    "orders": orders,
    "divided": divided,
    "every micro-batch updates": lambda: of(FLUSHLESS, "early_backward_a", 3, update="micro_batch"),
}


def document(path: Path = DOCUMENT, drawings: Mapping[str, Callable[[], str]] = DRAWINGS) -> str:
    """A document with its drawings as the code draws them."""

    def drawn(block: re.Match[str]) -> str:
        return f"<!-- drawn: {block['name']} -->\n```text\n{drawings[block['name']]()}```\n"

    return BLOCK.sub(drawn, path.read_text())


if __name__ == "__main__":
    DOCUMENT.write_text(document())
