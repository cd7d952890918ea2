"""Times of passes: when each pass of a pipeline runs, by a recurrence over the passes of all ranks, in any order.

    rank 0    F0 F1 F2 F3       B0    B1 ...      a pass begins when its rank has ended the pass before, and when what
    rank 1       F0 F1 B0 F2 B1 F3 ...            it reads has arrived; a link sends one output after another

A planner's formula says what a pass, a transfer and a sum of gradients take, but estimates a step as if all orders were
1F1B. Here the order itself is followed, in a small part of the time in which the plan is simulated op by op. So are
the micro-batches in flight, which say what memory a rank needs.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from envs.expansion.pass_lists import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, of_ranks
from envs.pass_orders import PassOrder
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.schedule import Sharing
from envs.simulation.compiled import compiled, subroutine
from graphs.cluster import FREE, Cluster
from graphs.foundation.by_name import Extension
from graphs.op_graph import Floats, Ints
from placers.learned.whole_plans.divided_times import slowest_shards, times_of_divided
from placers.learned.whole_plans.shared_weights import equal_again
from placers.pipelines.cuts import StageTimes
from placers.pipelines.pipeline_formula import PipelineFormula, sets_of
from placers.pipelines.places import Sets

KNOWN = 512  # lists of passes that are kept; ours


class RankPasses(NamedTuple):
    """The passes of all ranks, one rank after the other; each replica that takes turns is one."""

    begin: Ints  # (ranks + 1,) the first pass of each
    stage: Ints  # (passes,)
    kind: Ints  # (passes,)
    micro_batch: Ints  # (passes,)
    there: Ints  # (stages, micro-batches) the link by which what a forward pass reads is sent
    back: Ints  # (stages, micro-batches) the link by which what its backward pass makes is sent
    sums: Ints  # (stages,) the link by which replicas sum up gradients
    links: Ints  # (1,) how many links there are


class Bytes(NamedTuple):
    """Of memory, (stages,) each."""

    flying: Floats  # of a micro-batch in flight
    held: Floats  # of all else
    limit: Floats  # of the smallest device


class Progress(NamedTuple):
    """How far a step is, in seconds; overwritten."""

    there: Floats  # (stages, micro-batches) when what a forward pass reads has arrived; below zero if it has not
    back: Floats  # (stages, micro-batches) the same of backward passes
    next_pass: Ints  # (ranks,)
    free: Floats  # (ranks,) when each is
    link: Floats  # (links,) when each is free
    ended: Floats  # (stages,) when the last pass has ended
    updated: Floats  # (stages,) when gradients are summed up and weights are updated
    seen: Ints  # (stages,) the last rank of each that was met
    full: Floats  # (ranks,) of the memory that each has, the most that it needs


def estimates(formula: PipelineFormula, pipeline: LayerPipeline) -> tuple[float, float]:
    """Seconds of a step, infinite if it never ends, and what the fullest device needs over what it has.

    Of one stage those of the formula. Raises InputError for stages that the order of passes does not take.
    """
    stages, micro_batches = len(pipeline.stages), pipeline.micro_batches
    if stages == 1 and not pipeline.is_divided:
        return formula.estimates(pipeline)
    of_all = pipeline if not pipeline.is_divided else slowest_shards(formula, pipeline)
    times, memory = formula.of_stages(of_all), Bytes(*formula.memory_of_stages(of_all))
    if pipeline.is_divided:
        shards = np.array([stage.shards for stage in pipeline.stages])
        times = times_of_divided(formula, pipeline, times)
        memory = memory._replace(flying=memory.flying / shards, held=memory.held / shards)
    passes = passes_of(formula.grain.problem.cluster, pipeline.order, sets_of(of_all), micro_batches, pipeline.sharing)
    ranks = len(passes.begin) - 1
    progress = Progress(
        np.full((stages, micro_batches), -1.0), np.full((stages, micro_batches), -1.0), passes.begin[:-1].copy(),
        np.zeros(ranks), np.zeros(passes.links[0]), np.zeros(stages), np.zeros(stages), np.full(stages, -1),
        np.zeros(ranks),
    )  # fmt: skip
    seconds = _run(passes, times, memory, formula.of_weights, progress)
    shared = equal_again(formula, of_all, progress.updated, often=micro_batches if pipeline.is_divided else 1)
    return max(seconds, shared), float(progress.full.max())


@lru_cache(KNOWN)
def passes_of(
    cluster: Cluster, order: Extension[PassOrder], sets: Sets, micro_batches: int, sharing: Sharing
) -> RankPasses:
    """The passes of stages on these devices. Raises InputError for stages that the order does not take."""
    hosted = dict[tuple[int, ...], list[int]]()
    for stage, devices in enumerate(sets):
        hosted.setdefault(devices, []).append(stage)
    ranks = tuple(map(tuple, hosted.values()))
    rows = list[Ints]()
    for stages, several in of_ranks(order, ranks, micro_batches, tuple(map(len, sets)), sharing).items():
        replicas = len(sets[stages[0]]) if sharing == "turns" else 1
        rows += [several[several[:, 2] % replicas == turn] for turn in range(replicas)]
    rows = [row for row in rows if len(row)]
    turn = np.arange(micro_batches) * (sharing == "turns")
    on = np.array([np.array(devices)[turn % len(devices)] for devices in sets])  # of replicas the first
    before = np.concatenate([on[:1], on[:-1]])
    last = np.array([devices[-1] for devices in sets])
    there, back, sums = _links(cluster, [(before, on), (on, before), (on[:, 0], last)])
    count = 1 + max(int(each.max()) for each in (there, back, sums))
    stage, kind, number = np.concatenate(rows).T.copy()
    begin = np.cumsum([0, *map(len, rows)])
    return RankPasses(begin, stage, kind, number, there, back, sums, np.array([count]))


def _links(cluster: Cluster, pairs: Sequence[tuple[Ints, Ints]]) -> list[Ints]:
    """Of each pair of devices, (...,) senders and receivers, the number of the link: their channel, or their own."""
    own = int(cluster.channel.max()) + 1
    named = [
        np.where(
            (cluster.channel[pair] == FREE) | (pair[0] == pair[1]),
            own + pair[0] * len(cluster) + pair[1],
            cluster.channel[pair],
        )
        for pair in pairs
    ]
    numbers = np.unique(np.concatenate([each.ravel() for each in named]), return_inverse=True)[1].ravel()
    ends = np.cumsum([each.size for each in named])[:-1]
    return [each.reshape(pair.shape) for each, pair in zip(np.split(numbers, ends), named, strict=True)]


@subroutine
def _fill(passes: RankPasses, memory: Bytes, seen: Ints, full: Floats) -> None:
    """Write of each rank the most that it needs, over what it has, by the order of its passes."""
    for rank in range(len(full)):
        held, flying, most, limit = 0.0, 0.0, 0.0, np.inf
        for number in range(passes.begin[rank], passes.begin[rank + 1]):
            stage, kind = passes.stage[number], passes.kind[number]
            if kind == FORWARD:
                if seen[stage] != rank:
                    held, seen[stage] = held + memory.held[stage], rank
                flying += memory.flying[stage]
                most = max(most, flying)
            elif kind != INPUT_GRADIENT:
                flying -= memory.flying[stage]
            limit = min(limit, memory.limit[stage])
        full[rank] = (held + most) / limit


@subroutine
def _end(passes: RankPasses, times: StageTimes, of_weights: float, progress: Progress, rank: int) -> float:
    """When the next pass of a rank ends; infinite if there is none, or what it reads has not been sent."""
    number = progress.next_pass[rank]
    if number == passes.begin[rank + 1]:
        return np.inf
    stage, kind, of = passes.stage[number], passes.kind[number], passes.micro_batch[number]
    arrived, seconds = 0.0, times.backward[stage]
    if kind == FORWARD:
        seconds = times.forward[stage]
        arrived = progress.there[stage, of] if stage > 0 else 0.0
    elif kind == WEIGHT_GRADIENT:
        seconds *= of_weights
    else:
        arrived = progress.back[stage, of] if stage < len(times.forward) - 1 else 0.0
        seconds *= 1.0 if kind == BACKWARD else 1 - of_weights
    return max(progress.free[rank], arrived) + seconds if arrived >= 0 else np.inf


@subroutine
def _send(passes: RankPasses, times: StageTimes, of_weights: float, progress: Progress, rank: int) -> None:
    """Send what the pass that a rank has just ended makes for another stage: before it makes gradients of weights."""
    number = progress.next_pass[rank]
    stage, kind, of = passes.stage[number], passes.kind[number], passes.micro_batch[number]
    if kind == FORWARD and stage < len(times.forward) - 1:
        link, seconds = passes.there[stage + 1, of], times.there[stage + 1]
        sent = max(progress.free[rank], progress.link[link]) + seconds
        progress.there[stage + 1, of] = progress.link[link] = sent
    elif kind in (BACKWARD, INPUT_GRADIENT) and stage > 0:
        link, seconds = passes.back[stage, of], times.back[stage]
        made = progress.free[rank] - (of_weights * times.backward[stage] if kind == BACKWARD else 0.0)
        sent = max(made, progress.link[link]) + seconds
        progress.back[stage - 1, of] = progress.link[link] = sent


@compiled
def _run(passes: RankPasses, times: StageTimes, memory: Bytes, of_weights: float, progress: Progress) -> float:
    """Seconds of a step, pass by pass as they end; infinite where passes wait for each other."""
    for _ in range(len(passes.stage)):
        first, least = 0, np.inf
        for rank in range(len(progress.free)):
            end = _end(passes, times, of_weights, progress, rank)
            if end < least:
                first, least = rank, end
        if least == np.inf:
            return np.inf
        progress.free[first] = progress.ended[passes.stage[progress.next_pass[first]]] = least
        _send(passes, times, of_weights, progress, first)
        progress.next_pass[first] += 1
    last = 0.0
    for _ in range(len(times.forward)):  # sums follow the last passes, those of one link one another
        stage = np.argmin(progress.ended)
        link = passes.sums[stage]
        summed = max(progress.ended[stage], progress.link[link]) + times.summing[stage]
        last, progress.link[link], progress.ended[stage] = max(last, summed), summed, np.inf
        progress.updated[stage] = summed
    _fill(passes, memory, progress.seen, progress.full)
    return last
