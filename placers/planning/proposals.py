"""Proposals: the pipelines that are best by formula, of all sequences of places and numbers of micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from envs.pipelines.layer_grain import LayerGrain
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline, LayerStage
from placers.planning.cuts import BOUNDS, Places, Scratch, cut, estimated
from placers.planning.links_between import LinksBetween
from placers.planning.places import Sets, sequences, server_of
from placers.planning.stage_costs import kinds_of, stage_costs

MOST_MICRO_BATCHES = 64  # that are chosen without being asked for; ours
MOST_WORK = 2e8  # stages x layers^2 that are looked at, before the best are looked at more closely; ours
CLOSER = 256  # pipelines that are looked at more closely
INTERLEAVED = ("interleaved", "interleaved_zero_bubble")  # orders of passes, of two stages on each device
V_SHAPED = ("zb_v",)
ALIKE = 3  # proposals of as many replicas of each stage
FULL = 0.8  # of the memory: what is estimated to take more is proposed with recomputation, too


@dataclass(frozen=True)
class Proposal:
    """A pipeline, and what a formula says of it."""

    pipeline: LayerPipeline
    seconds: float  # of a step; infinite if it seems not to fit
    full: float  # of the memory of the fullest device


class Proposer:
    """The formulas for a problem at the grain of layers."""

    def __init__(self, grain: LayerGrain, used: Sequence[int], micro_batches: int = 0) -> None:
        """`used` are the devices that may be used, `micro_batches` their number, or 0."""
        self.grain, self._wanted = grain, micro_batches
        self._links = LinksBetween(grain.problem.cluster)
        self.costs, self.devices = stage_costs(grain, used)
        self.server = server_of(grain.problem.cluster, self.devices)
        self._scratch = Scratch.room_for(max(2 * len(used), 1), len(grain.layers))

    def best(self, most: int, stopped: Callable[[], bool] = lambda: False) -> list[Proposal]:
        """At most so many proposals, at least one, those of the shortest step first; fewer are compared if stopped."""
        found, work = list[Proposal](), 0.0
        graph, layers = self.grain.problem.graph, len(self.grain.layers)
        for sets in sequences(self.grain.problem.cluster, self.devices, self.server, graph.samples, layers):
            for micro_batches in self.micro_batches(len(sets), max(map(len, sets))):
                found += self._with(sets, micro_batches, thorough=False)
                work += len(sets) * layers**2
            if found and (work > MOST_WORK or stopped()):
                break
        found.sort(key=_merit)
        closer = [
            each
            for one in islice(found, CLOSER)
            for each in self._with(_sets(one.pipeline), one.pipeline.micro_batches, thorough=not stopped())
        ]
        return list(islice(_diverse(sorted(dict.fromkeys(closer), key=_merit)), most))

    def micro_batches(self, stages: int, replicas: int) -> list[int]:
        """The numbers of micro-batches that are tried."""
        samples = self.grain.problem.graph.samples
        if self._wanted:
            return [self._wanted] if samples % (self._wanted * replicas) == 0 else []
        most = min(MOST_MICRO_BATCHES, max(8 * stages, 16))
        possible = [count for count in range(1, most + 1) if samples % (count * replicas) == 0]
        if not samples:
            possible = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
        wanted = {1, 2} if stages == 1 else set()
        of_stages = [stages * times for times in (1, 2, 4, 8)] if stages > 1 else [4, 8, 16]
        for count in of_stages:
            wanted.add(max((each for each in possible if each <= count), default=1))
        return sorted(wanted & set(possible))

    def estimate(self, pipeline: LayerPipeline) -> float:
        """Seconds of a step by the formula."""
        return self._estimated(pipeline)[0]

    def full(self, pipeline: LayerPipeline) -> float:
        """What the fullest device is estimated to need, over what it has."""
        return self._estimated(pipeline)[1]

    def folded(self, pipeline: LayerPipeline) -> list[LayerPipeline]:
        """Pipelines with two stages on each device in place of one: interleaved, and in the shape of a V."""
        sets = _sets(pipeline)
        is_folded = len(set().union(*sets)) < sum(map(len, sets))
        if len(sets) < 2 or 2 * len(sets) > len(self.grain.layers) or is_folded:
            return []
        again = bool(pipeline.recompute)
        found = []
        for twice, orders in ((sets + sets, INTERLEAVED), (sets + sets[::-1], V_SHAPED)):
            cut_twice = self.cut(twice, pipeline.micro_batches, recompute=again, thorough=True).pipeline
            found += [replace(cut_twice, order=order) for order in orders]
        return found

    def _with(self, sets: Sets, micro_batches: int, *, thorough: bool) -> list[Proposal]:
        """The pipelines on a sequence of sets, with recomputation if memory asks for it, and without it."""
        found = [self.cut(sets, micro_batches, recompute=False, thorough=thorough)]
        if found[0].full > FULL and self.grain.problem.graph.is_training:
            found.append(self.cut(sets, micro_batches, recompute=True, thorough=thorough))
        return found

    def cut(self, sets: Sets, micro_batches: int, *, recompute: bool = False, thorough: bool = True) -> Proposal:
        """The best cuts by formula of a pipeline on these sets of devices."""
        places = self._places(sets, micro_batches, [recompute] * len(sets))
        seconds, full = cut(self.costs, places, micro_batches, thorough, BOUNDS, self._scratch)
        pipeline = self.pipeline(sets, self._scratch.found[: len(sets) + 1].tolist(), micro_batches)
        if recompute:
            pipeline = replace(pipeline, recompute=tuple(range(len(sets))))
        return Proposal(pipeline, seconds, full)

    def pipeline(self, sets: Sets, ends: Sequence[int], micro_batches: int) -> LayerPipeline:
        """The pipeline on these sets of devices whose stages are cut at `ends`, the first and last layer among them."""
        stages = tuple(LayerStage(*both, several) for both, several in zip(pairwise(ends), sets, strict=True))
        return LayerPipeline(stages, micro_batches, ONE_F_ONE_B)

    def _estimated(self, pipeline: LayerPipeline) -> tuple[float, float]:
        ends = np.array([0, *(stage.end for stage in pipeline.stages)], np.int64)
        again = [stage in pipeline.recompute for stage in range(len(pipeline.stages))]
        places = self._places(_sets(pipeline), pipeline.micro_batches, again)
        return estimated(self.costs, places, ends, pipeline.micro_batches, self._scratch)

    def _places(self, sets: Sets, micro_batches: int, recompute: Sequence[bool]) -> Places:
        count = len(sets)
        before = (sets[0], *sets[:-1])
        forward = [self._links.sending(one, other) for one, other in zip(before, sets, strict=True)]
        backward = [self._links.sending(other, one) for one, other in zip(before, sets, strict=True)]
        summing = [self._links.summing(several) for several in sets]
        hosted = Counter(device for several in sets for device in several)
        memory = self.devices.memory_bytes
        (there, there_each), (back, back_each), (late, late_each) = (
            np.array(links).T.copy() for links in (forward, backward, summing)
        )
        return Places(
            np.array([kinds_of(self.devices, several) for several in sets]),
            np.array([float(len(several)) for several in sets]),
            np.array([max(min(memory[each] / hosted[each] for each in several), 1e-9) for several in sets]),
            np.minimum(np.arange(count, 0, -1), micro_batches).astype(np.float64),
            there, there_each, back, back_each, late, late_each, np.array(recompute),
        )  # fmt: skip


def _sets(pipeline: LayerPipeline) -> Sets:
    return tuple(stage.devices for stage in pipeline.stages)


def _merit(proposal: Proposal) -> tuple[float, float]:
    """Seconds; of those that seem not to fit, the least full."""
    return proposal.seconds, proposal.full if np.isinf(proposal.seconds) else 0.0


def _diverse(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Some of each number of replicas first, then the others."""
    seen: Counter[tuple[int, ...]] = Counter()
    first, later = list[Proposal](), list[Proposal]()
    for one in proposals:
        alike = tuple(len(stage.devices) for stage in one.pipeline.stages)
        seen[alike] += 1
        (first if seen[alike] <= ALIKE else later).append(one)
    return first + later
