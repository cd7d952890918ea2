"""The step as autograd runs it: gradients are summed up on the device where they are made, and are then sent once.

A training step as it is captured has one gradient op per op. What it makes is sent to wherever it is read, and the sum
of several is taken there, so that the step is the same for all placements. Autograd has a node for each copy that was
made. It sums up what the ops on that copy's device have computed, and sends that, of the size of what was copied:

    captured                                 as autograd runs it
    a on 0 -> b, c on 1 -> ...               a on 0 -> b, c on 1 -> ...
    b.grad, c.grad -> a.grad: 2 transfers    b.grad, c.grad -> sum on 1 -> a.grad: 1 transfer

Of a weight likewise, in place of a chain of partial sums over all its users. Integers have no gradient.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from envs.plans.plan import Plan
from graphs.op_graph import RECOMPUTED, RESIDENT, Call, OpGraph, Phase
from graphs.problem import Problem

_OF_WEIGHTS = ".grad_weight"


def as_autograd_runs(problem: Problem, plan: Plan) -> tuple[Problem, Plan]:
    """A problem and a plan of one device per op whose simulation has the transfers that autograd makes.

    Further ops, which cost nothing, are the sums of gradients that are sent. Of a weight that several ops read, the one
    that updates it receives them.
    """
    graph, step = problem.graph, _StepDraft(problem.graph, plan)
    sums = len(step.names)
    order = plan.order if isinstance(plan.order, str) else (*plan.order, *(plan.order[op] for op in step.after))
    op_seconds = problem.op_seconds
    if op_seconds is not None:
        op_seconds = np.concatenate([op_seconds, np.zeros((sums, op_seconds.shape[1]))])
    nothing = np.zeros(sums)
    resident: dict[str, Any] = {
        key: np.append(getattr(graph, key), nothing) for key in RESIDENT if len(getattr(graph, key))
    }
    graph = replace(
        graph,
        names=(*graph.names, *step.names),
        kinds=(*graph.kinds, *["sum"] * sums),
        flops=np.append(graph.flops, nothing),
        bytes_accessed=np.append(graph.bytes_accessed, nothing),
        output_bytes=np.append(graph.output_bytes, step.sizes),
        edges=np.concatenate([np.array(sorted(step.edges), np.int64), graph.edges[graph.control]]),
        control=np.arange(len(step.edges) + graph.control.sum()) >= len(step.edges),
        edge_bytes=np.zeros(0),
        phase=np.append(graph.phase, np.full(sums, Phase.BACKWARD)),
        mirror=np.append(graph.mirror, np.full(sums, -1)),
        group=np.zeros(0, np.int64),
        measured_seconds=np.append(graph.measured_seconds, np.full(sums, np.nan)),
        measured_on={on: np.append(each, np.full(sums, np.nan)) for on, each in graph.measured_on.items()},
        devices=(*graph.devices, *[()] * sums) if graph.devices else (),
        transfer_bytes=np.zeros(0),
        **resident,
        calls=(*graph.calls, *step.calls) if graph.calls else (),
        described=(*graph.described, *[None] * sums) if graph.described else (),
        batch_law=None,
        signatures=graph.signatures.extended(sums) if graph.signatures else None,
    )
    devices = (*plan.devices, *((device,) for device in step.devices))
    return replace(problem, graph=graph, op_seconds=op_seconds), replace(plan, devices=devices, order=order)


class _StepDraft:
    """The edges of a step, and its sums."""

    def __init__(self, graph: OpGraph, plan: Plan) -> None:
        self.graph, self.placement = graph, plan.placement.tolist()
        self.names, self.sizes = list[str](), list[float]()
        self.devices, self.after = list[int](), list[int]()  # of each sum its device, and an op that it sums up
        self.calls = list[Call | None]()  # whose output it is the gradient of
        self.edges = set[tuple[int, int]]()
        arriving: dict[int, list[tuple[int, int]]] = defaultdict(list)  # forward op -> gradients, and who reads them
        for source, reader in graph.edges[~graph.control].tolist():
            is_backward = graph.phase[source] == Phase.BACKWARD and graph.phase[reader] == Phase.BACKWARD
            if not is_backward or graph.kinds[source].endswith(RECOMPUTED):
                self.edges.add((source, reader))
            elif not graph.kinds[source].endswith(_OF_WEIGHTS):
                producer = int(graph.mirror[reader])
                if self._has_gradient(producer, int(graph.mirror[source])):
                    arriving[producer].append((source, reader))
        for producer, pairs in arriving.items():
            self._sum(graph.names[producer], float(graph.output_bytes[producer]), self.placement[producer], pairs)
            self.calls += [graph.calls[producer] if graph.calls else None] * (len(self.names) - len(self.calls))
        self._sum_weights()

    def _sum(self, name: str, size: float, home: int, pairs: list[tuple[int, int]]) -> None:
        """Gradients go to who reads them at home: those that are made there by themselves, others summed up."""
        sums: dict[int, int] = {}
        for source, reader in pairs:
            device = self.placement[source]
            if device == home:
                self.edges.add((source, reader))
                continue
            if device not in sums:
                sums[device] = len(self.graph) + len(self.names)
                self.names.append(f"{name}.grad_sum_{device}")
                self.sizes.append(size)
                self.devices.append(device)
                self.after.append(source)
            self.edges |= {(source, sums[device]), (sums[device], reader)}

    def _sum_weights(self) -> None:
        """Those of each weight go to the op that updates it."""
        graph = self.graph
        of_op = {int(graph.mirror[op]): op for op, kind in enumerate(graph.kinds) if kind.endswith(_OF_WEIGHTS)}
        update = {int(graph.mirror[op]): int(op) for op in np.flatnonzero(graph.phase == Phase.UPDATE)}
        users: dict[int, list[int]] = defaultdict(list)
        for op, weight in sorted(graph.weight_uses.tolist()):
            users[weight].append(op)
        for weight, ops in users.items():
            owner = next((op for op in ops if op in update), None)
            if owner is not None and len(ops) > 1:
                pairs = [(of_op[op], update[owner]) for op in ops if op in of_op]
                name = f"weight {weight}"
                self._sum(name, float(graph.weights[weight]), self.placement[owner], pairs)
                self.calls += [None] * (len(self.names) - len(self.calls))

    def _has_gradient(self, producer: int, consumer: int) -> bool:
        """Whether an op reads another as something that can have a gradient; so it is if that is not known."""
        signatures = self.graph.signatures
        signature = None if signatures is None else signatures.signature(consumer)
        if signatures is None or signature is None:
            return True
        reads = [
            read
            for read, source in zip(signature.reads, signatures.numbers(consumer), strict=True)
            if source == producer
        ]
        return not reads or any("float" in read.dtype or "complex" in read.dtype for read in reads)
