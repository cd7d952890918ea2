"""Notes: which plan was best, by how much, and what the others take."""

import math
from collections.abc import Iterator, Sequence

from envs.pipelines.pipeline import LayerPipeline, Span
from graphs.foundation.errors import listed
from graphs.foundation.quantities import readable_seconds
from graphs.problem import STEP_TIME, Problem
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.stages_in_words import stages_in_words

LEAST = 0.0005  # of a step: what gains less is as fast


def said_of(contest: Contest, problem: Problem, placer: str = "planner") -> Iterator[str]:
    """Sentences of a placer on who was best, and by how much."""
    best = contest.best
    assert best is not None
    of = "" if problem.objective == STEP_TIME else f" by {problem.objective}"
    others = contest.others(best.who)
    if best.merit.lacking:
        yield f"{placer}: no plan fits; {best.who} lacks least memory, {best.merit.lacking / 2**30:.2f} GiB."
    elif best.merit.value == math.inf:
        yield f"{placer}: none of {len(others) + 1} plans would ever end{of}."
    elif others and not others[0].merit.lacking:
        gain = others[0].merit.value / best.merit.value - 1 if best.merit.value else 0.0
        faster = f"{gain:.1%} faster than" if gain >= LEAST else "as fast as"
        yield (
            f"{placer}: the best of {len(others) + 1} plans in the same simulator is {best.who}: "
            f"{readable_seconds(best.merit.value)}{of}, {faster} the next, {others[0].who}."
        )
    elif not others:
        yield f"{placer}: {best.who} takes {readable_seconds(best.merit.value)}{of}; nothing else was simulated."
    else:
        only = f"{best.who} is the only one of {len(others) + 1} plans that fits"
        yield f"{placer}: {only}: {readable_seconds(best.merit.value)}{of}."
    if others:
        yield f"{placer}: compared with {listed([*map(_worth, others)])}."
    by_reason: dict[str, list[str]] = {}
    for who, why in contest.refused.items():
        if who not in contest.entries:
            by_reason.setdefault(why, []).append(who)
    for why, several in by_reason.items():
        yield f"{placer}: no plan of {', '.join(several)}: {why}."


def _worth(entry: Contestant) -> str:
    if entry.merit.lacking:
        return f"{entry.who} (lacks {entry.merit.lacking / 2**30:.2f} GiB)"
    return f"{entry.who} ({readable_seconds(entry.merit.value)})"


def description(pipeline: LayerPipeline, seconds: float, spans: Sequence[Span] = ()) -> str:
    """A sentence on a pipeline, of which these spans of layers, if any, are computed again, and no others."""
    stages = pipeline.stages
    of_stages = stages_in_words([stage.end - stage.first for stage in stages], [len(each.devices) for each in stages])
    again = f", stages {', '.join(map(str, pipeline.recompute))} recomputed" if pipeline.recompute else ""
    parts = [f"{stage.again} of stage {place}" for place, stage in enumerate(stages) if stage.again]
    again += f", the first pieces recomputed, block by block: {', '.join(parts)}" if parts else ""
    if spans:
        inside = [sum(end - first for first, end in spans if stage.first <= first < stage.end) for stage in stages]
        parts = [f"{count} of stage {place}" for place, count in enumerate(inside) if count]
        again = f", those pieces recomputed that cost least: {', '.join(parts)}"
    count, is_pipeline = pipeline.micro_batches, len(pipeline.stages) > 1
    order = f" in the order {pipeline.order}" if is_pipeline else ""
    is_known = not pipeline.is_folded and not pipeline.is_divided and not spans
    estimate = f"; before simulation its step was estimated as {readable_seconds(seconds)}" if is_known else ""
    rule = f", ops in that of {pipeline.rule}" if pipeline.rule else ""
    turns = ", replicas taking turns" if pipeline.sharing == "turns" else ""
    if pipeline.is_divided:
        by = ", ".join(f"{stage.replicas} x {stage.shards}" for stage in pipeline.stages)
        turns = f", whose stages are of {by} devices (replicas x shards)"
    return (
        f"planner: its own pipeline, before each cut was moved unit by unit: {of_stages}{turns}, {count} "
        f"micro-batch{'es' * (count > 1)}{order}{rule}{again}{estimate}."
    )
