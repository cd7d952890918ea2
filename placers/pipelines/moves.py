"""Moves: what may be changed in a pipeline, one thing at a time.

    cuts                an end of a stage, by 1, 2, 4, ... layers
    devices             a device from one stage to another, an idle one to a stage, one that is taken out, and two that
                        change places
    stages              two that become one, and one that becomes two
    micro-batches       the next smaller and larger numbers
    recomputation       of one stage, or of all; or of more or fewer of the first layers of a stage, where such are
    order of passes     another, or one micro-batch more or fewer in flight, if it says how many
    sharing             replicas that split micro-batches, or take turns
    shards              twice or half as many of each replica, in one stage or in all, if stages may be divided

Pipelines with several stages on a device keep their devices. What is no plan for the problem is found out when it is
simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from envs.pass_orders import PassOrder
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import AS_READY
from graphs.foundation.by_name import Extension
from graphs.op_graph import Ints
from placers.pipelines.micro_batches import numbers_of

STEPS = (1, 2, 4, 8)  # layers


@dataclass(frozen=True)
class PipelineMoves:
    """What may be chosen."""

    devices: tuple[int, ...]
    kind: tuple[tuple[int, int], ...]  # of each device of the cluster: those of equal kind are alike
    samples: int  # of a step, or 0
    micro_batches: tuple[int, ...]  # numbers of them, in ascending order
    orders: tuple[Extension[PassOrder], ...] = ()  # of passes
    recompute: bool = False  # whether stages may compute activations again
    widths: tuple[int, ...] = ()  # how many shards replicas may have; none if stages are not divided otherwise

    @classmethod
    def of(cls, devices: Sequence[int], kind: Ints, server: Ints, samples: int, micro_batches: int) -> PipelineMoves:
        """On these devices; alike are those of a kind on a server, (devices,) each. `micro_batches` are given, or 0."""
        kinds = tuple(zip(kind.tolist(), server.tolist(), strict=True))
        return cls(tuple(devices), kinds, samples, (micro_batches,) if micro_batches else numbers_of(samples))

    def neighbours(self, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
        """All pipelines that differ by one change; some of them may be alike."""
        yield from _cuts(pipeline)
        if not pipeline.is_folded:
            yield from (one for one in self._devices(pipeline) if self._divides(one))
            yield from (one for one in self._stages(pipeline) if self._divides(one))
        yield from (one for one in self._schedules(pipeline) if self._divides(one))
        yield from (one for one in self._shards(pipeline) if self._divides(one))

    def _divides(self, pipeline: LayerPipeline) -> bool:
        """Whether the samples of a step can be divided so, and the shards of each replica are on one server."""
        if pipeline.sharing == "turns":
            is_whole = not any(pipeline.micro_batches % len(stage.devices) for stage in pipeline.stages)
            return is_whole and not pipeline.is_divided
        return not any(
            len(stage.devices) % stage.shards or self.samples % (pipeline.micro_batches * stage.replicas)
            for stage in pipeline.stages
        ) and all(map(self._is_within_servers, pipeline.stages))

    def _is_within_servers(self, stage: LayerStage) -> bool:
        groups = (stage.devices[first : first + stage.shards] for first in range(0, len(stage.devices), stage.shards))
        return stage.shards == 1 or all(len({self.kind[device] for device in group}) == 1 for group in groups)

    # ---- devices -----------------------------------------------------------------------------------------------------

    def _devices(self, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
        sets = [stage.devices for stage in pipeline.stages]
        idle = [device for device in self.devices if not any(device in several for several in sets)]
        places = range(len(sets))
        for place in places:
            for one in self._distinct(sets[place]):
                rest = _without(sets[place], one)
                if rest:
                    yield _on(pipeline, {place: rest})
                    for to in places:
                        if to != place:
                            yield _on(pipeline, {place: rest, to: _with(sets[to], one)})
                for other in self._distinct(idle):
                    if self.kind[other] != self.kind[one]:
                        yield _on(pipeline, {place: _with(rest, other)})
            for other in self._distinct(idle):
                yield _on(pipeline, {place: _with(sets[place], other)})
        for first, second in combinations(places, 2):
            if len(sets[first]) != len(sets[second]) or self._kinds(sets[first]) != self._kinds(sets[second]):
                yield _on(pipeline, {first: sets[second], second: sets[first]})
            for one in self._distinct(sets[first]):
                for other in self._distinct(sets[second]):
                    if self.kind[one] != self.kind[other] and len(sets[first]) + len(sets[second]) > 2:
                        yield _on(
                            pipeline,
                            {
                                first: _with(_without(sets[first], one), other),
                                second: _with(_without(sets[second], other), one),
                            },
                        )

    def _distinct(self, several: Sequence[int]) -> list[int]:
        """One of each kind."""
        return list({self.kind[device]: device for device in reversed(several)}.values())

    def _kinds(self, several: Sequence[int]) -> list[tuple[int, int]]:
        return sorted(self.kind[device] for device in several)

    # ---- stages ------------------------------------------------------------------------------------------------------

    def _stages(self, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
        stages = pipeline.stages
        for place, (one, other) in enumerate(pairwise(stages)):
            for devices in dict.fromkeys((_with(one.devices, *other.devices), one.devices, other.devices)):
                yield _with_stages(pipeline, place, 2, replace(one, end=other.end, devices=devices))
        for place, stage in enumerate(stages):
            length, count = stage.end - stage.first, len(stage.devices)
            if length < 2 or count < 2:
                continue
            for first in {1, count // 2, count - 1}:
                cut = stage.first + min(max(round(length * first / count), 1), length - 1)
                halves = stage.devices[:first], stage.devices[first:]
                parts = replace(stage, end=cut, devices=halves[0]), replace(stage, first=cut, devices=halves[1])
                yield _with_stages(pipeline, place, 1, *parts)

    # ---- schedules ---------------------------------------------------------------------------------------------------

    def _schedules(self, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
        numbers = sorted({*self.micro_batches, pipeline.micro_batches})
        at = numbers.index(pipeline.micro_batches)
        for count in [*numbers[max(at - 2, 0) : at], *numbers[at + 1 : at + 3]]:
            yield replace(pipeline, micro_batches=count)
        for order in self.orders:
            if order != pipeline.order and len(pipeline.stages) > 1:
                yield replace(pipeline, order=order)
        yield from _in_flight(pipeline)
        if self.recompute:
            every = tuple(range(len(pipeline.stages)))
            yield replace(pipeline, recompute=() if pipeline.recompute else every)
            for stage in every:
                yield replace(pipeline, recompute=tuple(sorted({stage} ^ set(pipeline.recompute))))
            if any(stage.again for stage in pipeline.stages):
                moved = (
                    with_again_moved(pipeline, stage, sign * by) for stage in every for by in STEPS for sign in (-1, 1)
                )
                yield from (one for one in moved if one is not None)
        if any(len(stage.devices) > 1 for stage in pipeline.stages) and pipeline.micro_batches > 1:
            yield replace(pipeline, sharing="turns" if pipeline.sharing == "split" else "split")

    # ---- shards ------------------------------------------------------------------------------------------------------

    def _shards(self, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
        every = range(len(pipeline.stages))
        for places in dict.fromkeys([tuple(every), *((place,) for place in every)]):
            for narrower in (False, True):
                stages = list(pipeline.stages)
                for place in places:
                    shards = stages[place].shards
                    wanted = [each for each in (1, *self.widths) if (each < shards if narrower else each > shards)]
                    if self.widths and wanted:
                        stages[place] = replace(stages[place], shards=max(wanted) if narrower else min(wanted))
                if stages != list(pipeline.stages):
                    yield replace(pipeline, stages=tuple(stages))


def change(before: LayerPipeline, after: LayerPipeline) -> str:
    """What differs between a pipeline and a neighbour, in a word or two."""
    if before.order != after.order:
        return f"order {after.order.name.partition(':')[0]}"
    if before.micro_batches != after.micro_batches:
        return "more micro-batches" if after.micro_batches > before.micro_batches else "fewer micro-batches"
    if before.sharing != after.sharing:
        return f"sharing {after.sharing}"
    if len(before.stages) != len(after.stages):
        return "more stages" if len(after.stages) > len(before.stages) else "fewer stages"
    if [stage.devices for stage in before.stages] != [stage.devices for stage in after.stages]:
        return "devices"
    if [stage.shards for stage in before.stages] != [stage.shards for stage in after.stages]:
        return "shards"
    if [stage.again for stage in before.stages] != [stage.again for stage in after.stages]:
        return "layers computed again"
    if before.recompute != after.recompute:
        return "more recomputation" if len(after.recompute) > len(before.recompute) else "less recomputation"
    return "cuts"


def _cuts(pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
    stages = pipeline.stages
    for place in range(len(stages) - 1):
        for by in (sign * step for step in STEPS for sign in (-1, 1)):
            moved = with_cut_moved(pipeline, place, by)
            if moved is not None:
                yield moved
    for place in range(len(stages) - 2):  # a stage in between that moves as a whole
        one, middle, other = stages[place : place + 3]
        for by in (-1, 1):
            if one.first < one.end + by and middle.end + by < other.end:
                shifted = replace(middle, first=middle.first + by, end=middle.end + by)
                yield _with_stages(
                    pipeline, place, 3, replace(one, end=shifted.first), shifted, replace(other, first=shifted.end)
                )


def _in_flight(pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
    """With one micro-batch fewer and one more in flight, if the order of passes says how many."""
    order: Any = None if pipeline.order == AS_READY else pipeline.order.built
    now = getattr(order, "in_flight", 0)
    for count in (now - 1, now + 1) if now else ():
        if 0 < count <= pipeline.micro_batches:
            yield replace(pipeline, order=replace(order, in_flight=count).name)


def with_again_moved(pipeline: LayerPipeline, place: int, by: int) -> LayerPipeline | None:
    """With `by` more of the first layers of a stage computed again, if others of its layers are not."""
    stage = pipeline.stages[place]
    count = stage.again + by
    if not 0 <= count < stage.end - stage.first or place in pipeline.recompute:
        return None
    return _with_stages(pipeline, place, 1, replace(stage, again=count))


def with_cut_moved(pipeline: LayerPipeline, place: int, by: int) -> LayerPipeline | None:
    """With the end of a stage `by` layers later, if that leaves layers in both stages."""
    one, other = pipeline.stages[place : place + 2]
    cut = one.end + by
    if not one.first < cut < other.end:
        return None
    return _with_stages(pipeline, place, 2, replace(one, end=cut), replace(other, first=cut))


def _with_stages(pipeline: LayerPipeline, place: int, replaced: int, *by: LayerStage) -> LayerPipeline:
    """With other stages in place of some; recomputed are those that were, and new ones if all of theirs were."""
    after = place + replaced
    again = {stage for stage in pipeline.recompute if stage < place}
    again |= {stage + len(by) - replaced for stage in pipeline.recompute if stage >= after}
    if replaced == len(by):
        again |= {stage for stage in pipeline.recompute if place <= stage < after}
    elif all(stage in pipeline.recompute for stage in range(place, after)):
        again |= set(range(place, place + len(by)))
    stages = (*pipeline.stages[:place], *by, *pipeline.stages[after:])
    return replace(pipeline, stages=stages, recompute=tuple(sorted(again)))


def _on(pipeline: LayerPipeline, devices: dict[int, tuple[int, ...]]) -> LayerPipeline:
    """With other devices of some stages."""
    return replace(
        pipeline,
        stages=tuple(
            replace(stage, devices=devices.get(place, stage.devices)) for place, stage in enumerate(pipeline.stages)
        ),
    )


def _with(several: tuple[int, ...], *others: int) -> tuple[int, ...]:
    return tuple(sorted({*several, *others}))


def _without(several: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(device for device in several if device != one)
