"""By how much another numbering of the ops changes what plans take: `python -m tests.envs.expansion.renumbering`.

Of ops that are equally urgent and have been ready equally long, the one of lowest number runs first. `program` and
`fifo` go by numbers, or by what was ready first, much more often than `longest_path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Sharing
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import RESIDENT, Ints, OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from graphs.runtime import order_of

MODELS = (
    "transformer:layers=2,width=64,heads=2,sequence=16,batch=16,vocabulary=50",
    "rnnlm:layers=2,hidden=64,steps=4,batch=16,vocabulary=50", "gnmt:layers=2,steps=3,batch=16", "vit:layers=2",
)  # fmt: skip
PASS_ORDERS = ("gpipe", "early_backward_a", "early_backward_b", "interleaved", "zb_h1")
REPLICAS: tuple[tuple[int, Sharing], ...] = ((1, "split"), (2, "split"), (2, "turns"))
DRAWS = 4


def costs_alone(model: str) -> OpGraph:
    """A model's step, of which nothing is known but what its ops cost."""
    graph = load_graph(model, with_law=True)
    return replace(graph, calls=(), signatures=None, described=(), held=None, autograd=None)


def without_ties(graph: OpGraph, rng: np.random.Generator) -> OpGraph:
    """The same with costs that differ from op to op, so that no two are equally urgent."""
    law, times = graph.batch_law, rng.uniform(0.9, 1.1, len(graph))
    assert law is not None
    law = replace(law, flops=law.flops * times, bytes_accessed=law.bytes_accessed * times)
    return replace(graph, flops=graph.flops * times, bytes_accessed=graph.bytes_accessed * times, batch_law=law)


def renumbered(graph: OpGraph, number: Ints) -> OpGraph:
    """The same graph, each op of which has another number, (ops,)."""
    old, law = np.argsort(number), graph.batch_law
    assert law is not None
    moved: dict[str, Any] = {key: tuple(getattr(graph, key)[op] for op in old) for key in ("names", "kinds")}
    for key in (
        "flops",
        "bytes_accessed",
        "output_bytes",
        "phase",
        "group",
        "measured_seconds",
        "transfer_bytes",
        *RESIDENT,
    ):
        moved[key] = getattr(graph, key)[old] if len(getattr(graph, key)) else getattr(graph, key)
    uses = np.column_stack([number[graph.weight_uses[:, 0]], graph.weight_uses[:, 1]])
    mirror = np.where(graph.mirror[old] < 0, -1, number[graph.mirror[old]])
    law = BatchLaw(law.samples, law.flops[old], law.bytes_accessed[old], law.output_bytes[old])
    return replace(graph, edges=number[graph.edges], weight_uses=uses, mirror=mirror, batch_law=law, **moved)


def plans(graph: OpGraph, rule: str) -> Iterator[tuple[str, Plan]]:
    """Plans of all kinds on four devices, cut by the position of units."""
    position = np.empty(len(graph))
    position[graph.topological_order] = np.arange(len(graph))
    first = np.full(graph.num_units, np.inf)
    np.minimum.at(first, graph.units, position)
    place = np.argsort(np.argsort(first))[graph.units]
    for order in PASS_ORDERS:
        for replicas, sharing in REPLICAS:
            ranks = 4 // replicas
            stages = ranks * (1 + (order == "interleaved"))
            stage = (place * stages // graph.num_units).tolist()
            devices = tuple(tuple(range(at % ranks * replicas, (at % ranks + 1) * replicas)) for at in stage)
            for recompute in ((), tuple(range(stages))):
                schedule = Schedule(4, order=order, recompute=recompute, sharing=sharing, stages=tuple(stage))
                yield f"{order}, {replicas} {sharing}", Plan(devices, order_of(rule), schedule)


def changes(graph: OpGraph, rule: str, rng: np.random.Generator) -> Iterator[tuple[str, float, float]]:
    """Of each plan what it is, and by what share its step and the peak of a device change with the numbers."""
    number = rng.permutation(len(graph))
    old, cluster = np.argsort(number), load_cluster("v100x4")
    given, other = Problem(graph, cluster), Problem(renumbered(graph, number), cluster)
    for name, plan in plans(graph, rule):
        moved = replace(
            plan, devices=tuple(plan.devices[op] for op in old),
            schedule=replace(plan.schedule, stages=tuple(plan.schedule.stages[op] for op in old)),
        )  # fmt: skip
        try:
            before, after = simulate(given, plan), simulate(other, moved)
        except InputError:
            continue  # an order of passes that does not take so many stages
        peak = np.abs(after.peak_bytes / before.peak_bytes - 1).max()
        yield name, abs(after.step_seconds / before.step_seconds - 1), float(peak)


def main() -> None:
    """Print the largest changes under each rule, of graphs as they are captured."""
    for rule in ("longest_path", "program", "fifo"):
        rng = np.random.default_rng(0)
        found = [each for model in MODELS for _ in range(DRAWS) for each in changes(costs_alone(model), rule, rng)]
        step, peak = max(found, key=lambda each: each[1]), max(found, key=lambda each: each[2])
        same = np.mean([each[1] < 1e-12 for each in found])
        print(f"{rule}: {len(found)} plans, the same step in {same:.0%}, at most {step[1]:.2%} ({step[0]}) of the step "
              f"and {peak[2]:.1%} ({peak[0]}) of a peak")  # fmt: skip


if __name__ == "__main__":
    main()
