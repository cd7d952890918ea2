"""ShardedStep: a captured training step, run shard by shard as a plan divides it, in one process.

It follows the expanded graph op by op. A shard has what the ops before it hold on its device, or have sent it along an
edge, the weights that its device stores, and the inputs; from these it puts together the boxes that it reads, and
computes its part alone. So what is missing, or is added up twice, shows: results are not those of the whole step.

    op of the plan's graph     x @ w, along k over two devices        relu, along n
    expanded graph             work 0 --> sum 0 -----------------> work 0
                               work 1 --> sum 1 -----------------> work 1
    what each holds            a summand of y   its rows of y      its rows of relu(y)

What there is, each file on top of those before it:

    running         parts of an op, each on its slices alone
    backward        parts of its gradients
    boxed           parts of tensors, and how they are joined
    arrivals        what an op of an expanded graph has, of what the ops before it hold
    computing       what the shards of an op make of the parts of tensors that they read
    sharded_step    a whole step
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush

import numpy as np
from torch import Tensor

from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.shards.shards import Partition, Shards
from envs.plans.mesh import coordinates
from graphs.descriptions.descriptions import updated_weights
from graphs.notation.described import Source
from graphs.notation.operator import Statistic
from graphs.notation.ranges import hull, whole
from graphs.op_graph import Phase
from tests.oracle.sharded.arrivals import Arrivals, MissingPart
from tests.oracle.sharded.boxed import Boxed, added, joined
from tests.oracle.sharded.computing import Computing, ShardReads


class ShardedStep:
    """A training step in parts, once it has been run."""

    def __init__(self, expansion: Expansion, given: Mapping[int, Tensor], rate: float = 0.0) -> None:
        """Runs the step. `given` are weights and inputs by number, as `graphs.capture.forward.Builder.given` has them.

        Updates subtract `rate` times the gradient from weights. Raises InputError for a graph with ops that are not
        described, and MissingPart for an expansion that lacks a transfer.
        """
        self.expansion = expansion
        self.partition = Partition(Layout(expansion.given, expansion.plan))
        self.computing = Computing(self.partition, given, rate)
        self.arrivals = Arrivals(expansion, self.partition, self.computing)
        self.updated: dict[tuple[int, int], list[Boxed]] = defaultdict(list)
        """By weight and device the boxes of new values that updates and refreshes there have made."""
        self._gradients: dict[int, list[Boxed]] = defaultdict(list)  # by weight, as updates read them
        self._waiting: dict[tuple[int, tuple[int, ...]], dict[int, ShardReads]] = defaultdict(dict)
        for op in self._in_order():
            if expansion.role[op] in (Role.WORK, Role.RECOMPUTED):
                self._work(op)
            else:
                self.arrivals.hold(op)

    # ---- results -----------------------------------------------------------------------------------------

    def result(self, op: int, number: int = 0) -> Tensor:
        """All of a result of an op of the given graph, put together and added up out of what its shards have made.

        Micro-batches are added up, which is what a loss is. Raises MissingPart if some of it was not made.
        """
        source, made = Source(op, number), defaultdict[tuple[int, ...], list[Boxed]](list)
        for copy, held in self.arrivals.copies(op):
            made[self.arrivals.summands(copy, source)].append(held[number])
        sums = [added(parts, hull(part.box for part in parts)) for parts in made.values()]
        found = joined([each for each in sums if each is not None], self.partition.shards[op].whole[number])
        if found is None:
            raise MissingPart(f"no shard has made some of {self.computing.graph.names[op]!r}")
        return found.values

    def gradient(self, weight: int) -> Tensor:
        """All of the gradient of a weight, as updates read it. Raises MissingPart if none has some of it."""
        found = joined(self._gradients[weight], whole(self.computing.whole[-1 - weight].shape))
        if found is None:
            raise MissingPart(f"no update has some of the gradient of weight {weight}")
        return found.values.reshape(self.computing.given[-1 - weight].shape)

    # ---- running -----------------------------------------------------------------------------------------

    def _in_order(self) -> Iterator[int]:
        """The ops of the expanded graph, each after those before it; shards of an op follow one another, if they may.

        So statistics are exchanged before anything else runs.
        """
        graph, given = self.expansion.problem.graph, self.computing.graph
        position = np.empty(len(given), np.int64)
        position[given.topological_order] = np.arange(len(given))
        place = np.where(self.expansion.origin >= 0, position[self.expansion.origin], -1).tolist()
        missing = np.bincount(graph.edges[:, 1], minlength=len(graph)).tolist()
        offsets, out_edges = graph.successors
        readers = graph.edges[out_edges, 1].tolist()
        ready = [(place[op], op) for op, count in enumerate(missing) if not count]
        heapify(ready)
        while ready:
            _, op = heappop(ready)
            yield op
            for reader in readers[offsets[op] : offsets[op + 1]]:
                missing[reader] -= 1
                if not missing[reader]:
                    heappush(ready, (place[reader], reader))

    def _work(self, op: int) -> None:
        origin, shard = int(self.expansion.origin[op]), int(self.expansion.replica[op])
        shards, described = self.partition.shards[origin], self.computing.described(origin)
        parts, summands = list[Tensor | None](), set[int]()
        for number, source in enumerate(described.sources):
            if source is None:
                parts.append(None)
                continue
            part, group = self.arrivals.read(op, source, shards.read[number][shard])
            if group:
                summands.add(number)
                if self.computing.graph.kinds[origin] == "loss":
                    self.arrivals.unsummed[op] = group
            parts.append(part.values)
        members = _together(shards, self.computing.statistics(origin), shard)
        first = op - shard
        waiting = self._waiting[first, members]
        waiting[shard] = ShardReads(shard, parts, frozenset(summands))
        if len(waiting) < len(members):
            return
        several = [waiting[member] for member in members]
        made = self.computing.run(origin, several, int(self.expansion.micro_batch[op]))
        for member, reads, results in zip(members, several, made, strict=True):
            self.arrivals.held[first + member] = results
            if self.computing.graph.phase[origin] >= Phase.UPDATE:
                self._store(origin, int(self.expansion.placement[first + member]), reads, results)

    def _store(self, op: int, device: int, reads: ShardReads, results: list[Boxed]) -> None:
        """Keep what an update or a refresh has made of weights, and the gradients that it was made of."""
        weights = updated_weights(self.partition.described, op)
        for number, (weight, new) in enumerate(zip(weights, results, strict=True)):
            self.updated[weight, device].append(new)
            gradient = reads.parts[len(results) + number]
            if self.computing.graph.phase[op] == Phase.UPDATE and gradient is not None:
                self._gradients[weight].append(Boxed(new.box, gradient))


def _together(shards: Shards, statistics: tuple[Statistic, ...], shard: int) -> tuple[int, ...]:
    """The shards that run together, since statistics are of all of them: those of one copy of what is divided so."""
    every = coordinates(shards.axes)
    across = [bool(index) and any(index not in each.index for each in statistics) for index in shards.split]
    own = every[shard]
    return tuple(
        other
        for other, at in enumerate(every)
        if all(is_across or one == two for one, two, is_across in zip(at, own, across, strict=True))
    )
