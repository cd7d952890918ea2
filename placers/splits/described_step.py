"""The split graph of a problem's step: every op in index notation, gradients and updates among them, as it is expanded.

    described op   reads results of other ops and weights, as it says (`graphs.notation.described`)
    other op       every device does all of it, and reads all of what it reads
    weight         is stored as the shards of its update read it; without an update, in a layout that is chosen

What is chosen here is a plan's split (`Plan.split`), which `envs.expansion` writes out: there it is simulated, and what
is moved can be compared.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from envs.costs.costs import costs_of
from envs.plans.mesh import Split
from envs.plans.plan import Plan
from graphs.descriptions.descriptions import descriptions_of, read_by_loss
from graphs.notation.described import Described, Source
from graphs.notation.operator import Access, Operator
from graphs.op_graph import Floats, OpGraph, Phase
from graphs.problem import Problem
from placers.splits.cuts import SplitAssignment
from placers.splits.options import Splitting
from placers.splits.split_graph import UNTIED, SplitGraph, SplitOp, SplitTensor, is_replica
from placers.splits.time_steps import tied_steps

_UNKNOWN = (1,)  # the shape of what an op without a description makes


def split_graph_of(problem: Problem, *, coarsened: bool = True, steps: bool = True) -> SplitGraph:
    """A step, its ops in the order of the problem's graph.

    `coarsened` ties gradients to their forward ops, as Tofu does; `steps` ties the time steps of recurrent networks.
    """
    builder = _SplitGraphBuilder(problem, descriptions_of(problem.graph), coarsened, steps)
    for op in range(len(problem.graph)):
        builder.add(op)
    return SplitGraph(problem.graph.name, tuple(builder.tensors), tuple(builder.ops))


def plan_of(splitting: Splitting, cuts: SplitAssignment, devices: Sequence[int]) -> Plan:
    """The plan of cuts of a step's split graph, on devices that are laid out row by row over the mesh."""
    several, split = tuple(devices), list[Split]()
    for op, by in zip(splitting.graph.ops, cuts.of_ops(splitting), strict=True):
        is_open = op.as_updated or (splitting.rules.replicas and is_replica(op, by))
        split.append(() if is_open else by)
    return Plan((several,) * len(splitting.graph.ops), split=tuple(split), mesh=splitting.mesh)


@dataclass
class _SplitGraphBuilder:
    problem: Problem
    described: Sequence[Described | None]
    coarsened: bool
    steps: bool
    tensors: list[SplitTensor] = field(default_factory=list)
    ops: list[SplitOp] = field(default_factory=list)
    number: dict[Source, int] = field(default_factory=dict)
    groups: dict[object, int] = field(default_factory=dict)  # numbers of what is tied
    operators: dict[object, Operator] = field(default_factory=dict)  # equal ones once: what is computed of them is kept

    def __post_init__(self) -> None:
        problem, graph = self.problem, self.problem.graph
        self.seconds: Floats = costs_of(problem).op_seconds.mean(axis=1)
        self.launch = float(problem.hold_seconds.mean())
        self.step = tied_steps(graph) if self.steps else [(op,) for op in range(len(graph))]
        self.producers: dict[int, list[int]] = defaultdict(list)
        for producer, consumer in graph.edges[~graph.control].tolist():
            self.producers[consumer].append(producer)
        self.weights: dict[int, list[int]] = defaultdict(list)
        for op, weight in graph.weight_uses.tolist():
            self.weights[op].append(weight)
        source, target = graph.edges.T
        is_kept = (graph.phase[source] == Phase.FORWARD) & (graph.phase[target] == Phase.BACKWARD)
        self.is_kept = np.zeros(len(graph), np.bool_)  # whose output waits for the backward pass
        self.is_kept[source[is_kept]] = True
        self.shape: dict[Source, tuple[int, ...]] = {}
        for op, each in enumerate(self.described):
            if each is not None:
                self.shape |= {Source(op, place): access.shape for place, access in enumerate(each.operator.writes)}
                reads = zip(each.sources, each.operator.reads, strict=True)
                self.shape |= {source: access.shape for source, access in reads if source and source.op < 0}
        self.updated = {
            source.weight
            for op, each in enumerate(self.described)
            if graph.phase[op] == Phase.UPDATE and each is not None
            for source in each.sources
            if source is not None and source.op < 0
        }

    def add(self, op: int) -> None:
        """Add an op."""
        each, graph = self.described[op], self.problem.graph
        if each is None:
            sources = [Source(producer) for producer in self.producers[op]]
            sources += [Source(-1 - weight) for weight in self.weights[op]]
            reads = [self.tensor(source) for source in sources]
            made = [self.tensor(Source(op))]
            operator = self.whole(reads, made)
        elif graph.phase[op] == Phase.REFRESH:
            operator, reads, made = self.whole((), ()), [], []
        elif graph.phase[op] == Phase.UPDATE:
            operator, reads, made = self.update(each)
        else:
            operator = each.operator
            reads = [self.read(source) for source in each.sources]
            made = [self.tensor(Source(op, place)) for place in range(len(operator.writes))]
        seconds, tied = float(self.seconds[op]), self.tied(op)
        launch = self.launch if seconds else 0.0
        as_updated = each is not None and bool(graph.phase[op] == Phase.REFRESH)
        self.ops.append(
            SplitOp(
                graph.names[op], operator, tuple(reads), tuple(made), seconds + launch, launch, tied=tied,
                batch="" if each is None else each.batch, as_updated=as_updated,
            )
        )  # fmt: skip
        for place, number in enumerate(made):
            if tied != UNTIED:
                group = self.group("of", graph.kinds[op].rpartition(".")[2], tied, place)
                self.tensors[number] = replace(self.tensors[number], tied=group)

    def read(self, source: Source | None) -> int:
        """The tensor that a described op reads; -1 for what every device has: it is made by an op that each does.

        And for a loss, of which each device goes on with its own part.
        """
        if source is None or source not in self.shape:
            return -1
        if source.op >= 0 and prod(self.shape[source]) == 1 and read_by_loss(self.problem.graph)[source.op]:
            return -1
        return self.tensor(source)

    def tensor(self, source: Source) -> int:
        """The number of a tensor."""
        if source not in self.number:
            graph, shape = self.problem.graph, self.shape.get(source, _UNKNOWN)
            count = max(prod(shape), 1)
            if source.op < 0:
                size, held = float(graph.weights[source.weight]), float(self.problem.weight_state_bytes[source.weight])
                name, is_updated = f"weight {source.weight}", source.weight in self.updated
                made = SplitTensor(name, shape, size / count, not is_updated, held, as_made=is_updated)
            else:
                each = self.described[source.op]
                writes = [] if each is None else each.operator.writes
                total = sum(prod(access.shape) for access in writes) or 1
                is_mean = graph.phase[source.op] == Phase.BACKWARD and not _is_of_weights(graph, source.op)
                size = float(graph.output_bytes[source.op]) * (max(len(writes), 1) if is_mean else 1) / total
                held = size * count if self.is_kept[source.op] else 0.0
                is_gradient = _is_of_weights(graph, source.op)
                made = SplitTensor(graph.names[source.op], shape, size, held_bytes=held, is_gradient=is_gradient)
            self.number[source] = len(self.tensors)
            self.tensors.append(made)
        return self.number[source]

    def update(self, each: Described) -> tuple[Operator, list[int], list[int]]:
        """An update, which writes weights where it reads them; it has no other results that are read."""
        pairs = list(zip(each.sources, each.operator.reads, strict=True))
        weights = [(source, access) for source, access in pairs if source is not None and source.op < 0]
        others = [(source, access) for source, access in pairs if source is None or source.op >= 0]
        key = each.operator, tuple(source is not None and source.op < 0 for source in each.sources)
        if key not in self.operators:
            used = frozenset[str]().union(*(access.variables for _, access in weights))
            sizes = {name: size for name, size in each.operator.sizes.items() if name in used}
            self.operators[key] = replace(
                each.operator,
                sizes=sizes,
                reads=tuple(access for _, access in others),
                writes=tuple(replace(access, apart=frozenset(sizes)) for _, access in weights),
            )
        reads = [self.read(source) for source, _ in others]
        return self.operators[key], reads, [self.tensor(source) for source, _ in weights if source is not None]

    def tied(self, op: int) -> int:
        """The number of what is tied: an op with its gradients, if coarsened, and with its other time steps."""
        graph, each = self.problem.graph, self.described[op]
        forward = op if graph.mirror[op] < 0 else int(graph.mirror[op])
        if graph.phase[op] >= Phase.UPDATE or each is None:
            return UNTIED
        what = "" if self.coarsened or op == forward else graph.kinds[op].rpartition(".")[2]
        return self.group(self.step[forward], tuple(sorted(each.operator.sizes)), what)

    def group(self, *key: object) -> int:
        return self.groups.setdefault(key, len(self.groups))

    def whole(self, reads: Sequence[int], made: Sequence[int]) -> Operator:
        """The operator of an op that is not divided."""
        shapes = tuple(self.tensors[number].shape for number in reads), tuple(self.tensors[i].shape for i in made)
        if shapes not in self.operators:
            accesses = [[Access(shape, (None,) * len(shape)) for shape in several] for several in shapes]
            self.operators[shapes] = Operator({}, tuple(accesses[0]), tuple(accesses[1]))
        return self.operators[shapes]


def _is_of_weights(graph: OpGraph, op: int) -> bool:
    return graph.kinds[op].endswith(".grad_weight")
