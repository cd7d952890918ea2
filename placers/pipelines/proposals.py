"""Proposals: the pipelines that are best by formula, of all sequences of places and numbers of micro-batches.

The best sequences are changed, too, as long as that makes them better: a device moves to another stage, and the like.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline, LayerStage
from envs.plans.schedule import Sharing, pass_order_of
from graphs.op_graph import Floats
from placers.pipelines.cuts import ALL, NEEDED
from placers.pipelines.micro_batches import FEW_MICRO_BATCHES, doubled, numbers_of
from placers.pipelines.pipeline_formula import PipelineFormula, sets_of
from placers.pipelines.places import Sets, rows, sequences, server_of
from placers.pipelines.replica_counts import divided
from placers.pipelines.size import is_too_large

MOST_WORK = 1e8  # stages x layers^2 that are looked at, before the best are looked at more closely; ours
CLOSER = 96  # pipelines that are looked at more closely
CHANGED = 4  # of these, whose devices are moved between stages
CHANGES = 8  # of each, at most
NEAR = 2  # stages, between which devices move in long pipelines
LONG = 8  # stages
LATER = pass_order_of(
    "early_backward_b"
)  # DAPPLE's second: up to twice as many micro-batches in flight, which hide transfers
INTERLEAVED = tuple(
    map(pass_order_of, ("interleaved", "interleaved_zero_bubble", "looped_bfs"))
)  # of two stages on each device
V_SHAPED = tuple(map(pass_order_of, ("zb_v", "dualpipe_v")))
IN_LESS_MEMORY = ("v_half", "v_min")  # the same shape, with as many micro-batches in flight as memory admits
IN_MORE_MEMORY = "zb_h2"  # of one stage on each device
ALIKE = 3  # proposals of as many replicas of each stage
FULL = 0.8  # of the memory: what is estimated to take more is proposed with recomputation, too


@dataclass(frozen=True)
class Proposal:
    """A pipeline, and what a formula says of it."""

    pipeline: LayerPipeline
    seconds: float  # of a step; infinite if it seems not to fit
    full: float  # of the memory of the fullest device


class Proposer:
    """Proposes pipelines of a problem at the grain of layers."""

    def __init__(self, formula: PipelineFormula, micro_batches: int = 0) -> None:
        """`micro_batches` is their number, or 0 where it is to be chosen."""
        self.formula, self._wanted = formula, micro_batches
        self.grain, self.devices = formula.grain, formula.devices
        self.server = server_of(self.grain.problem.cluster, self.devices)
        kinds = zip(self.devices.kind.tolist(), self.server.tolist(), strict=True)
        self._alike = list(kinds)  # of each device

    def best(self, most: int, stopped: Callable[[], bool] = lambda: False) -> list[Proposal]:
        """At most `most` proposals, at least one, those of the shortest step first; fewer are compared if stopped."""
        found, work = list[Proposal](), 0.0
        graph, layers = self.grain.problem.graph, len(self.grain.layers)
        paths = self._divided(graph.samples)
        for sets in sequences(self.grain.problem.cluster, self.devices, self.server, graph.samples, layers, paths):
            for several in self._of_all_numbers(sets):
                found += several
                work += len(sets) * layers**2
            if found and (work > MOST_WORK or stopped()):
                break
        closer = [
            each
            for one in islice(_diverse(sorted(found, key=_merit)), CLOSER)
            for each in self._with(sets_of(one.pipeline), one.pipeline.micro_batches, thorough=not stopped())
        ]
        changed = [
            self._changed(one, stopped) for one in islice(_diverse(sorted(closer, key=_merit), alike=1), CHANGED)
        ]
        found = list(islice(_diverse(sorted(dict.fromkeys(closer + changed), key=_merit)), most))
        return [self._with_more_in_flight(one) for one in found]

    def _of_all_numbers(self, sets: Sets) -> Iterator[list[Proposal]]:
        """The pipelines on a sequence of sets, with more micro-batches as long as they would not fit otherwise."""
        replicas, last = max(map(len, sets)), list[Proposal]()
        tried = self.micro_batches(len(sets), replicas)
        for micro_batches in tried:
            last = list(self._with(sets, micro_batches, thorough=False))
            yield last
        for micro_batches in doubled(self._possible(replicas), tried[-1]) if tried and not self._wanted else ():
            if not last or last[0].full <= 1:
                break
            last = list(self._with(sets, micro_batches, thorough=False))
            yield last

    def _divided(self, samples: int) -> Iterator[Sets]:
        """Sequences of places of the shortest paths over layers and devices."""
        for row in rows(self.grain.problem.cluster, self.devices, self.server):
            for micro_batches in self.micro_batches(len(row), 1)[-2:]:
                yield from divided(self.formula.costs, self.devices, self.formula.links, row, micro_batches, samples)

    def _with_more_in_flight(self, proposal: Proposal) -> Proposal:
        """In the order of passes that waits less for transfers, if memory allows that; the formula sees no difference.

        It knows no order of 1F1B in which a transfer holds up more than one micro-batch.
        """
        pipeline = replace(proposal.pipeline, order=LATER)
        if len(pipeline.stages) == 1 or not self.grain.problem.graph.is_training or np.isinf(proposal.seconds):
            return proposal
        seconds, full = self.formula.estimates(pipeline)
        return Proposal(pipeline, seconds, full) if full <= 1 else proposal

    def _changed(self, proposal: Proposal, stopped: Callable[[], bool]) -> Proposal:
        """The best that single changes of the devices of stages lead to."""
        for _ in range(CHANGES):
            pipeline = proposal.pipeline
            again, counts = _again(pipeline), pipeline.micro_batches
            around = [
                self.cut(sets, counts, again=again, thorough=False, sharing=pipeline.sharing)
                for sets in self._around(sets_of(pipeline))
                if self._divides(sets, counts, pipeline.sharing) and len(sets) <= len(self.grain.layers)
            ]
            best = min(around, key=_merit, default=proposal)
            if stopped() or _merit(best) >= _merit(proposal):
                break
            proposal = self.cut(sets_of(best.pipeline), counts, again=again, sharing=pipeline.sharing)
        return proposal

    def _around(self, sets: Sets) -> Iterator[Sets]:
        """Sequences that differ by a device in another set, and by two sets that are joined or one that is divided."""
        for place, several in enumerate(sets):
            for one in {self._alike[device]: device for device in several}.values():
                rest = tuple(device for device in several if device != one)
                for to in range(len(sets)):
                    if len(sets) > LONG and abs(to - place) > NEAR:
                        continue
                    moved = [*sets]
                    moved[place], moved[to] = rest, tuple(sorted((*sets[to], one)))
                    if to != place:
                        yield tuple(each for each in moved if each)
            for size in {1, len(several) // 2, len(several) - 1} - {0, len(several)}:
                yield (*sets[:place], several[:size], several[size:], *sets[place + 1 :])
        for place, (several, others) in enumerate(pairwise(sets)):
            yield (*sets[:place], tuple(sorted(several + others)), *sets[place + 2 :])

    def _divides(self, sets: Sets, micro_batches: int, sharing: Sharing) -> bool:
        samples = self.grain.problem.graph.samples
        if sharing == "turns":
            return not any(micro_batches % len(several) for several in sets)
        return not any(samples % (micro_batches * len(several)) for several in sets)

    def micro_batches(self, stages: int, replicas: int) -> list[int]:
        """The numbers of micro-batches that are tried at first."""
        samples = self.grain.problem.graph.samples
        if self._wanted:
            return [self._wanted] if samples % (self._wanted * replicas) == 0 else []
        possible = self._possible(replicas)
        most = min(FEW_MICRO_BATCHES, max(8 * stages, 16))
        possible = [count for count in possible if count <= most] or possible[:1]
        wanted = {1, 2} if stages == 1 else set()
        of_stages = [stages * times for times in (1, 2, 4, 8)] if stages > 1 else [4, 8, 16]
        for count in of_stages:
            wanted.add(max((each for each in possible if each <= count), default=1))
        return sorted(wanted & set(possible))

    def _possible(self, replicas: int) -> list[int]:
        """Numbers of micro-batches of plans that are not too large to be simulated; the least in any case."""
        problem, numbers = self.grain.problem, numbers_of(self.grain.problem.graph.samples, replicas)
        copies = len(problem.graph) * replicas
        return [count for count in numbers if not is_too_large(problem, copies * count)] or list(numbers[:1])

    def folded(self, pipeline: LayerPipeline) -> list[LayerPipeline]:
        """Pipelines with two stages on each device in place of one: interleaved, and in the shape of a V.

        Where memory does not admit the activations of 1F1B, also in orders that take less.
        """
        sets = sets_of(pipeline)
        if len(sets) < 2 or 2 * len(sets) > len(self.grain.layers) or pipeline.is_folded:
            return []
        again = ALL if pipeline.recompute else 0
        found = []
        for twice, orders in ((sets + sets, INTERLEAVED), (sets + sets[::-1], V_SHAPED)):
            cut_twice = self.cut(twice, pipeline.micro_batches, again=again, thorough=True).pipeline
            found += [replace(cut_twice, order=order) for order in orders]
        return found

    def in_less_memory(self, pipeline: LayerPipeline, lacking: Floats) -> Iterator[LayerPipeline]:
        """A pipeline in the order zb_v that lacks memory, (devices,) bytes, with fewer micro-batches in flight.

        As many as fit, and one more, as fewer inputs then wait for their stage.
        """
        kept = np.maximum(self.formula.kept(pipeline), 1e-9)
        fitting = len(pipeline.stages) // 2 - int(min(np.ceil((lacking / kept).max()), len(pipeline.stages)))
        seconds = np.maximum(self.formula.times(pipeline), 1e-30)
        times = "+".join(f"{each:g}" for each in np.clip(seconds / seconds[0], 0.0, 1e3).round(2).tolist())
        for count in range(max(fitting, 1), fitting + 2):
            fewer = replace(pipeline, order=f"{IN_LESS_MEMORY[0]}:in_flight={count},times={times}")
            yield fewer
            yield self.formula.cut_again(fewer)

    def _with(self, sets: Sets, micro_batches: int, *, thorough: bool) -> Iterator[Proposal]:
        """The pipelines on a sequence of sets, with recomputation, also of some layers, if memory asks for it.

        Replicas split micro-batches, and take turns if the micro-batches suffice.
        """
        for sharing in ("split", "turns"):
            is_needed = sharing == "split" or (micro_batches > 1 and max(map(len, sets)) > 1)
            if not is_needed or not self._divides(sets, micro_batches, sharing):
                continue
            found = self.cut(sets, micro_batches, thorough=thorough, sharing=sharing)
            yield found
            if found.full > FULL and self.grain.problem.graph.is_training:
                yield self.cut(sets, micro_batches, again=ALL, thorough=thorough, sharing=sharing)
                if sharing == "split":
                    yield self.cut(sets, micro_batches, again=NEEDED, thorough=thorough)

    def cut(
        self, sets: Sets, micro_batches: int, *, again: int = 0, thorough: bool = True, sharing: Sharing = "split"
    ) -> Proposal:
        """The best cuts by formula of a pipeline on these sets of devices; `again` as of `PipelineFormula.cut`."""
        cut = self.formula.cut(sets, micro_batches, again=again, thorough=thorough, sharing=sharing)
        pipeline = self.pipeline(sets, cut.ends, micro_batches)
        if again == NEEDED:
            parts = zip(pipeline.stages, cut.again, strict=True)
            pipeline = replace(pipeline, stages=tuple(replace(stage, again=count) for stage, count in parts))
        recompute = tuple(range(len(sets))) if again == ALL else ()
        return Proposal(replace(pipeline, recompute=recompute, sharing=sharing), cut.seconds, cut.full)

    def pipeline(self, sets: Sets, ends: Sequence[int], micro_batches: int) -> LayerPipeline:
        """The pipeline on these sets of devices whose stages are cut at `ends`, the first and last layer among them."""
        stages = tuple(LayerStage(*both, several) for both, several in zip(pairwise(ends), sets, strict=True))
        return LayerPipeline(stages, micro_batches, ONE_F_ONE_B)


def _again(pipeline: LayerPipeline) -> int:
    """Which layers of a proposal are computed again, as of `PipelineFormula.cut`."""
    if pipeline.recompute:
        return ALL
    return NEEDED if any(stage.again for stage in pipeline.stages) else 0


def _merit(proposal: Proposal) -> tuple[float, float]:
    """Seconds; of those that seem not to fit, the least full."""
    return proposal.seconds, proposal.full if np.isinf(proposal.seconds) else 0.0


def _diverse(proposals: Iterable[Proposal], alike: int = ALIKE) -> list[Proposal]:
    """Some of each number of replicas first, then the others."""
    seen: Counter[tuple[object, ...]] = Counter()
    first, later = list[Proposal](), list[Proposal]()
    for one in proposals:
        key = (one.pipeline.sharing, *(len(stage.devices) for stage in one.pipeline.stages))
        seen[key] += 1
        (first if seen[key] <= alike else later).append(one)
    return first + later
