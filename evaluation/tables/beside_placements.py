"""What an op placement is worth next to what people would do without it: data parallelism, and one device.

A placement gains from the order in which ops run, and the loop of the model's own code has PyTorch's. On a chain of
ops that order leaves nothing to gain, while data parallelism does not depend on it.
"""

from dataclasses import replace

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import ratio, seconds
from evaluation.tables.step_summary import SAME, StepSummary
from graphs.foundation.errors import InputError
from graphs.runtime import runtime_of
from placers.data_parallel import DataParallel

LITTLE = 1.1  # times as fast as one device
MOST_COPIES = 1_000_000  # of ops on devices, whose step is simulated for a sentence; ours
TRIED = 2  # numbers of micro-batches of data parallelism, of which it takes the first that fits
OTHER_KINDS = (
    "More devices gain little by op placement here: `placelab place --plans all` also tries data parallelism, "
    "pipelines and divided ops."
)


def beside_placement(timeline: Timeline, *, compared: bool = False) -> list[str]:
    """Sentences on a placement of a training step on several devices; none on other plans.

    `compared` says that it is the best of plans of all kinds.
    """
    problem = timeline.problem
    if timeline.expansion is not None or len(problem.cluster) < 2 or not problem.graph.is_training:
        return []
    summary = StepSummary.of(timeline)
    said = [_issued(timeline, summary), _replayed(timeline)]
    if not compared:
        said.append(_data_parallel(timeline) or (OTHER_KINDS if summary.speedup < LITTLE else ""))
    return [each for each in said if each]


def _data_parallel(timeline: Timeline) -> str:
    """What data parallelism takes, if that is less; empty if it is not, or if it is not known how samples divide."""
    problem = timeline.problem
    if not problem.graph.samples or len(problem.graph) * len(problem.cluster) > MOST_COPIES:
        return ""
    try:
        found = simulate(problem, DataParallel().place(problem, budget=TRIED).plan)
    except InputError:  # op placements only
        return ""
    if found.step_seconds >= timeline.step_seconds * (1 - SAME):
        return ""
    fits = "and fits" if found.fits else f"but does not fit: {found.overflow()}"
    over = ratio(timeline.step_seconds / found.step_seconds)
    return (
        f"Data parallelism takes {seconds(found.step_seconds)}, {over} times as fast, {fits}: "
        "`placelab place --plans all` compares all kinds of plans."
    )


def _issued(timeline: Timeline, summary: StepSummary) -> str:
    """What the placement takes where ops run as PyTorch issues them, if it gains little there."""
    problem, alone = timeline.problem, summary.alone
    if (
        alone is None
        or problem.runtime.streams
        or not problem.graph.calls
        or problem.graph.control.any()
        or summary.speedup < 1 + SAME
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
        f"Issuing ops binds this loop: replayed, a step of this plan takes {seconds(taken)}. `--runtime replay` plans "
        "for that, and `parallelize(..., replay=inputs)` runs it."
    )


def _in_loop(timeline: Timeline, runtime: str) -> float:
    """Seconds of the placement where a loop of the model's own code runs it."""
    plan = Plan(tuple((device,) for device in timeline.placement.tolist()))
    return simulate(replace(timeline.problem, runtime=runtime_of(runtime)), plan).step_seconds
