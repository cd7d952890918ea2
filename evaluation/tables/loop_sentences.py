"""What an op placement takes in the loop of the model's own code, which issues ops in PyTorch's order.

A placement gains from the order in which ops run. On a chain of ops that order leaves nothing to gain.
"""

from dataclasses import replace

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import ratio, seconds
from evaluation.tables.alone import fastest_alone
from evaluation.tables.step_summary import SAME
from graphs.runtime import runtime_of

LITTLE = 1.1  # times as fast as one device


def loop_sentences(timeline: Timeline) -> list[str]:
    """Sentences on a placement of a training step on several devices; none on other plans."""
    problem = timeline.problem
    if timeline.expansion is not None or len(problem.cluster) < 2 or not problem.graph.is_training:
        return []
    return [each for each in (_issued(timeline), _replayed(timeline)) if each]


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
        "takes "
        f"{seconds(taken)}. `--runtime replay` plans for that."
    )


def _in_loop(timeline: Timeline, runtime: str) -> float:
    """Seconds of the placement where a loop of the model's own code runs it."""
    plan = Plan(tuple((device,) for device in timeline.placement.tolist()))
    return simulate(replace(timeline.problem, runtime=runtime_of(runtime)), plan).step_seconds
