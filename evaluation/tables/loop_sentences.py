"""What of a gain is the loop's: what an op placement takes in PyTorch's order, and what issuing ops side by side gains.

A placement gains from the order in which ops run. On a chain of ops that order leaves nothing to gain.
"""

from dataclasses import replace

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import ratio, seconds
from evaluation.tables.alone import fastest_alone
from evaluation.tables.step_summary import SAME
from graphs.problem import Problem
from graphs.runtime import runtime_of

LITTLE = 1.1  # times as fast as one device


def loop_sentences(timeline: Timeline) -> list[str]:
    """Sentences on a placement of a training step on several devices, and on plans that several processes run."""
    problem = timeline.problem if timeline.expansion is None else timeline.expansion.given
    if len(problem.cluster) < 2:
        return []
    said = _side_by_side(timeline, problem)
    if not problem.graph.is_training or timeline.expansion is not None:
        return said
    return [*said, *filter(None, (_issued(timeline), _replayed(timeline)))]


def _side_by_side(timeline: Timeline, problem: Problem) -> list[str]:
    """What a plan gains by its processes, which issue ops side by side, if that is much of it."""
    if problem.host is None or (timeline.expansion is None and problem.runtime.streams):  # a loop has one thread
        return []
    free = replace(problem, runtime=problem.runtime.with_knobs(host="none"))
    alone, alone_free = fastest_alone(problem), fastest_alone(free)
    if alone is None or alone_free is None:
        return []
    gain = alone.seconds / timeline.step_seconds
    gain_free = alone_free.seconds / simulate(free, _plan(timeline)).step_seconds
    if gain < LITTLE * gain_free:
        return []
    over = f"{ratio(gain_free)} times as fast as" if gain_free > 1 + SAME else "no faster than"
    return [
        "Each device has a process here, and their threads issue ops side by side, where one issues all on one device: "
        f"if issuing took no time, as in a CUDA graph (`--host none`), this plan were {over} one device, not "
        f"{ratio(gain)} times."
    ]


def _issued(timeline: Timeline) -> str:
    """What the placement takes where ops run as PyTorch issues them, if it gains little there."""
    problem = timeline.problem
    alone = fastest_alone(problem)
    if (
        alone is None
        or problem.runtime.streams
        or not problem.graph.calls
        or problem.graph.control.any()
        or alone.seconds < timeline.step_seconds * (1 + SAME)
    ):
        return ""
    taken = _in_loop(timeline, "parallelize:host=none")
    gain = alone.seconds / taken
    if gain >= LITTLE:
        return ""
    over = f"{ratio(gain)} times as fast as" if gain > 1 + SAME else "no faster than"
    return f"In PyTorch's order, as the loop of the model's own code has it: {seconds(taken)}, {over} one device."


def _replayed(timeline: Timeline) -> str:
    """What a replayed step takes, of which a thread issues less, if that is much less than the loop."""
    problem = timeline.problem
    if not problem.runtime.streams or problem.host is None or not problem.graph.calls:
        return ""
    taken = _in_loop(timeline, "replay")
    if taken * LITTLE > timeline.step_seconds:
        return ""
    return (
        "Devices wait for ops to be issued: replayed, as by `parallelize(..., replay=inputs)`, a step of this plan "
        f"takes {seconds(taken)}. `--runtime replay` plans for that."
    )


def _in_loop(timeline: Timeline, runtime: str) -> float:
    """Seconds of the placement where a loop of the model's own code runs it."""
    return simulate(replace(timeline.problem, runtime=runtime_of(runtime)), _plan(timeline)).step_seconds


def _plan(timeline: Timeline) -> Plan:
    """Its plan, of an op placement without an order of its own."""
    if timeline.expansion is not None:
        return timeline.expansion.plan
    return Plan(tuple((device,) for device in timeline.placement.tolist()))
