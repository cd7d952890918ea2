"""Stage grain: a plan's stages as one op for each phase, for planners that judge thousands of candidates.

Of each stage there are at most these ops, with the seconds of all ops that they stand for, launches included, or those
for which a host issues these, whichever are more:

    forward     its output is what the stage keeps for its backward pass
    backward    the part of its backward pass that earlier stages wait for
    gradient    the rest, for the gradients of its weights
    sum         a free op whose output is all gradients of its weights
    update      the updates of its weights
    refresh     where further users of updated weights receive their new values

Of the gradients inside a backward pass the two largest that follow each other take memory, and no others: those take
the place of what they are made from.
What passes from an op to other stages are parcels: free ops, the output of each of which is all that the same ops
read. So every output is sent to a stage once, and kept there as long as somebody reads it. The problem and the plan at
this grain are expanded as any other.

A stage may be several blocks, each of which then has ops of its own, so that gradients of the last ones are summed up
over replicas while the first ones are still computed. And the problem may be one at such a grain already
(`envs.pipelines.grain.layer_grain`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from envs.costs.costs import Costs
from envs.expansion.buckets import as_made, gradient_bytes
from envs.expansion.layout import Layout
from envs.expansion.shares import shared
from envs.plans.plan import Plan
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.held_tensors import HeldTensors
from graphs.op_graph.weight_memory import WeightMemory
from graphs.problem import Problem

FORWARD, BACKWARD, GRADIENT, SUM, UPDATE, REFRESH = range(6)
PARTS = ("forward", "backward", "gradient", "sum", "update", "refresh")
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.UPDATE, Phase.REFRESH)
KINDS = (
    "stage.forward", "stage.backward", "stage.grad_weight", "sum.grad_weight", "stage.update", "stage.refresh",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StageGrain:
    """A problem and a plan, which has been checked, at the grain of stages, or of blocks of them."""

    problem: Problem
    plan: Plan
    blocks: Ints | None = None
    """(ops,) the block of each op, from 0 in the order of the stages, each in one stage; stages unless given."""
    part_of: Callable[[Problem, float], Problem] = shared
    """What a share of the problem's batch costs (`envs.expansion.expand`)."""
    summed: Floats | None = None
    """(ops,) of each gradient of weights the share that is summed up; all unless given."""

    @cached_property
    def coarse_plan(self) -> Plan:
        """The plan of the coarse problem."""
        stage_of_block = np.zeros(int(self._block.max()) + 1, np.int64)
        stage_of_block[self._block] = self._layout.stage
        stages = stage_of_block[self.block].tolist()
        devices = self._layout.stage_devices
        schedule = replace(self.plan.schedule, stages=tuple(stages))
        order = None if isinstance(self.plan.order, tuple) else self.plan.order
        return Plan(tuple(devices[stage] for stage in stages), order, schedule)

    @property
    def parcels(self) -> int:
        """How many there are: the last ops of the coarse problem."""
        return len(self._parcels)

    @cached_property
    def coarse(self) -> Problem:
        """The problem of the stage ops and, after those, the parcels."""
        keys, parcels = self._keys, self._parcels
        stage, part = np.divmod(keys, len(PARTS))
        names = [f"{PARTS[each]}.{number}" for number, each in zip(stage.tolist(), part.tolist(), strict=True)]
        names += [f"{names[source]}, sent, number {i}" for i, source in enumerate(parcels.tolist())]
        source = np.concatenate([np.arange(len(keys)), parcels])
        kinds = [KINDS[each] for each in part[source].tolist()]
        edges, control = self._edges
        weights, frozen, held, gradients, uses = self._weights
        nothing = np.zeros(len(source))
        graph = OpGraph(
            self.problem.graph.name, tuple(names), tuple(kinds), nothing, nothing,
            nothing, edges, control, weights, uses, np.array(PHASES)[part[source]], frozen=frozen, held=self._held,
        )  # fmt: skip
        memory = WeightMemory(held, np.append(self._makes_gradients, np.zeros(len(parcels), np.bool_)), gradients)
        runtime = replace(self.problem.runtime, host=None)
        return self.shared(replace(self.problem, graph=graph, op_seconds=None, memory=memory, runtime=runtime), 1.0)

    def shared(self, coarse: Problem, share: float) -> Problem:
        """The coarse problem of a share of the batch."""
        given = self.part_of(self.problem, share)
        launch, ops = coarse.hold_seconds, len(coarse.graph)
        assert given.op_seconds is not None
        busy = Costs(given.op_seconds).busy_seconds(given)
        host = given.host
        issuing = np.where(given.op_seconds > 0, 0.0 if host is None else host.seconds(given.graph.phase)[:, None], 0.0)
        seconds = np.zeros((ops, len(launch)))
        for device, columns in enumerate(zip(busy.T, issuing.T, strict=True)):
            seconds[:, device] = np.maximum(*(np.bincount(self._op, each, minlength=ops) for each in columns))
        seconds = np.where(seconds > 0, np.maximum(seconds - launch, 0.0), 0.0)  # the last is held after the stage op
        (op, output), made_bytes = self._kept.T, given.graph.made_bytes
        part_of_op = self._keys % len(PARTS)
        is_made = (part_of_op[op] != SUM) | self._layout.is_sparse_gradient[np.minimum(output, len(self._op) - 1)]
        kept = np.bincount(op[is_made], made_bytes[output[is_made]], minlength=len(self._keys)) + self._summed_bytes
        kept[part_of_op == BACKWARD] = 0.0
        op, read, made = self._passed_on.T
        working = given.graph.working_bytes[made] if len(given.graph.working_bytes) else 0.0
        np.maximum.at(kept, op, made_bytes[read] + made_bytes[made] + working)
        parcel, output = self._packed.T
        sent = np.bincount(parcel, given.graph.occupied_bytes[output], minlength=len(self._parcels))
        moved = np.bincount(parcel, given.graph.moved_bytes[output], minlength=len(self._parcels))
        transfers = np.zeros(0) if np.array_equal(sent, moved) else np.concatenate([kept, moved])
        graph = replace(coarse.graph, output_bytes=np.concatenate([kept, sent]), transfer_bytes=transfers)
        return replace(coarse, graph=graph, op_seconds=seconds)

    # ---- of which op of a stage each op is a part --------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.problem, self.plan)

    @property
    def _block(self) -> Ints:
        """(ops,) the block of each op."""
        return self._layout.stage if self.blocks is None else self.blocks

    @cached_property
    def _key(self) -> Ints:
        """(ops,) block and part of each op, as one number."""
        phase = np.array([FORWARD, BACKWARD, UPDATE, REFRESH])[self.problem.graph.phase]
        part = np.where(self._layout.is_weight_gradient, GRADIENT, phase)
        return self._block * len(PARTS) + part

    @cached_property
    def _keys(self) -> Ints:
        """(stage ops,) stage and part of each, in ascending order."""
        keys = np.unique(self._key)
        blocks = np.concatenate([keys[keys % len(PARTS) == GRADIENT], self._key[self._summed]]) // len(PARTS)
        return np.unique(np.concatenate([keys, blocks * len(PARTS) + SUM]))

    @cached_property
    def _op(self) -> Ints:
        """(ops,) the stage op that stands for each op."""
        return np.searchsorted(self._keys, self._key)

    @cached_property
    def block(self) -> Ints:
        """(stage ops + parcels,) the block of each, by default the stage."""
        block = self._keys // len(PARTS)
        return np.concatenate([block, block[self._parcels]])

    # ---- gradients of weights ----------------------------------------------------------------------------------------

    @cached_property
    def _is_summed(self) -> Bools:
        """(edges,) whether each leads from a gradient of weights to what reads the sum: another op of a stage.

        A profile of layers has one backward op for both gradients, and updates wait for that.
        """
        graph, (producer, consumer) = self.problem.graph, self.problem.graph.edges.T
        is_gradient = (self._key[producer] % len(PARTS) == GRADIENT) & (self._key[producer] != self._key[consumer])
        is_updated = (graph.phase[producer] == Phase.BACKWARD) & (graph.phase[consumer] >= Phase.UPDATE)
        return np.asarray(is_gradient | (is_updated & ~graph.control))

    @property
    def _summed(self) -> Ints:
        """(gradients,) ops that make gradients of weights, in ascending order."""
        return np.unique(self.problem.graph.edges[self._is_summed, 0])

    @property
    def _makes_gradients(self) -> Bools:
        """(stage ops,) whether the output of each is gradients for which no room is set aside: those of sums."""
        made = self._summed[self.problem.weight_memory.gradients[self._summed]]
        return np.isin(self._keys, self._key[made] // len(PARTS) * len(PARTS) + SUM)

    @cached_property
    def _summed_bytes(self) -> Floats:
        """(stage ops,) bytes of the gradients that sums are of, without those of looked-up rows."""
        made = as_made(self.problem.graph, self._summed)
        made = made[~self._layout.is_sparse_gradient[made]]
        of_sum = np.searchsorted(self._keys, self._key[made] // len(PARTS) * len(PARTS) + SUM)
        size = gradient_bytes(self._layout, made) * (1.0 if self.summed is None else self.summed[made])
        return np.bincount(of_sum, size, minlength=len(self._keys)).astype(np.float64)

    # ---- what passes between them ------------------------------------------------------------------------------------

    @cached_property
    def _ends(self) -> tuple[Ints, Ints]:
        """(edges,) the stage ops that each edge of the graph leads from and to; within a stage nothing reads sums."""
        producer, consumer = self.problem.graph.edges.T
        of_sum = np.searchsorted(self._keys, self._key[producer] // len(PARTS) * len(PARTS) + SUM)
        return np.where(self._is_summed, of_sum, self._op[producer]), self._op[consumer]

    @cached_property
    def _reads(self) -> tuple[Ints, Ints]:
        """(reads, 3) of each output that another op reads: stage op, output, reader; at its stage, and at others."""
        producer, consumer = self._ends
        stage = self._keys // len(PARTS)
        reads = np.column_stack([producer, self.problem.graph.edge_output, consumer])
        reads = reads[~self.problem.graph.control & (producer != consumer)]
        here = stage[reads[:, 0]] == stage[reads[:, 2]]
        return reads[here], reads[~here]

    @cached_property
    def _kept(self) -> Ints:
        """(kept, 2) stage op, and an output that others of its stage read."""
        return distinct_pairs(self._reads[0][:, :2])[0]

    @cached_property
    def _passed_on(self) -> Ints:
        """(edges, 3) of those inside a backward pass: stage op, output that is read, op that reads it."""
        producer, consumer = self._ends
        inside = ~self.problem.graph.control & (producer == consumer) & (self._keys[producer] % len(PARTS) == BACKWARD)
        columns = producer, self.problem.graph.edge_output, self.problem.graph.edges[:, 1]
        return np.asarray(np.column_stack(columns)[inside])

    @cached_property
    def _sent(self) -> Ints:
        """(reads, 4) of what is sent to other stages: stage op that made it, output, number of the parcel, reader.

        Outputs of an op that the same ops read are in one parcel.
        """
        source, output, reader = self._reads[1].T
        made_by = np.zeros(len(self.problem.graph.moved_bytes), np.int64)
        made_by[output] = source
        output, reader = distinct_pairs(np.column_stack([output, reader]))[0].T
        sent, first = np.unique(output, return_index=True)
        numbers: dict[tuple[int, bytes], int] = {}
        parcels = [
            numbers.setdefault((made, readers.tobytes()), len(numbers))
            for made, readers in zip(made_by[sent].tolist(), np.split(reader, first[1:]), strict=True)
        ] if len(sent) else []  # fmt: skip
        number = np.repeat(np.array(parcels, np.int64), np.diff(first, append=len(output)))
        return np.column_stack([made_by[output], output, number, reader])

    @cached_property
    def _parcels(self) -> Ints:
        """(parcels,) the stage op that makes each."""
        return np.asarray(self._sent[np.unique(self._sent[:, 2], return_index=True)[1], 0])

    @cached_property
    def _packed(self) -> Ints:
        """(packed, 2) parcel, and an output in it."""
        return distinct_pairs(self._sent[:, [2, 1]])[0]

    @cached_property
    def _edges(self) -> tuple[Ints, Bools]:
        """(edges, 2) between stage ops and parcels, and which of them only order these."""
        # Data: of the same stage, or from a parcel to its reader. Parcels are numbered after the stage ops.
        count = len(self._keys)
        data = [self._reads[0][:, [0, 2]], self._sent[:, [2, 3]] + np.array([count, 0])]
        producer, consumer = self._ends
        orders = (producer != consumer) & self.problem.graph.control
        made = self._op[self.problem.graph.edges[self._is_summed, 0]]
        gradients = np.flatnonzero(self._keys % len(PARTS) == GRADIENT)
        # Order alone: control edges; parcels, sums and updates after what they wait for.
        control = [
            np.column_stack([producer, consumer])[orders],
            self._sent[:, [0, 2]] + np.array([0, count]),
            np.column_stack([made, producer[self._is_summed]]),
            np.column_stack([gradients, gradients + 1]),
        ]
        # Many edges between ops become one between stages, which orders alone if none of them carries data.
        found, which = distinct_pairs(np.concatenate([*data, *control]))
        carries = np.bincount(which[: sum(map(len, data))], minlength=len(found)) > 0
        return found, ~carries

    @property
    def _held(self) -> HeldTensors | None:
        """What its ops read that none of them makes, by the stage op that stands for each."""
        held = self.problem.graph.held
        return held and replace(held, uses=np.column_stack([self._op[held.uses[:, 0]], held.uses[:, 1]]))

    @cached_property
    def _weights(self) -> tuple[Floats, Bools, Floats, Floats, Ints]:
        """Of weights that the same stages use, together, (weights,) their bytes, which are frozen, and what they hold.

        The latter is what they hold for the whole step, and their gradients. At last (uses, 2) op, weight.
        """
        graph, stage, memory = self.problem.graph, self._block, self.problem.weight_memory
        ops, weights = graph.weight_uses.T
        is_frozen = graph.frozen if len(graph.frozen) else np.zeros(len(graph.weights), np.bool_)
        users = np.zeros((len(graph.weights), int(stage.max()) + 2), np.bool_)
        users[weights, stage[ops]] = True
        users[:, -1] = is_frozen
        numbers: dict[bytes, int] = {}  # np.unique of rows would take most of the time that the coarse problem takes
        together = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in users], np.int64)
        size, held, gradients = (
            np.bincount(together, each).astype(np.float64)
            for each in (graph.weights, memory.bytes, memory.gradient_bytes)
        )
        uses = distinct_pairs(np.column_stack([self._op[ops], together[weights]]))[0]
        return size, np.bincount(together, is_frozen) > 0, held, gradients, uses
