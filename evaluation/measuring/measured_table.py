"""A simulated step next to the measured one, as the terminal shows it."""

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from envs.running.measured_run import MeasuredRun, RunSteps
from envs.running.process_memory import Growth
from evaluation.measuring.measured_rows import TimeComparison, device_rows, kind_rows, link_rows
from evaluation.records.formatting import NOTHING, memory, numbers, ratio, seconds, table
from evaluation.tables.step_chart import StepChart

KINDS = 8  # of ops that are shown: those that took longest
UNLIKE = 0.05  # relative difference from which two predictions of a step are both said


def measured_table(run: MeasuredRun, devices: Sequence[str], cores: int) -> Iterator[RenderableType]:
    """By device, kind of op and link what was predicted and measured; a chart of both steps; and sentences."""
    yield _devices(run, devices)
    kinds, as_planned = kind_rows(run), not _elsewhere(run, devices)
    title = f"The {min(KINDS, len(kinds))} kinds of ops that took longest"
    yield _rows(title, "kind", "ops", kinds[:KINDS], as_planned=as_planned)
    if links := link_rows(run):
        title = "Links, from when a tensor is handed over until its reader has it"
        yield _rows(title, "link", "transfers", links, as_planned=as_planned)
    for name, step in (("Predicted", run.predicted), ("Measured", run.measured)):
        yield Text(f"{name}:")
        yield StepChart(step)
    if run.differences:
        yield differences_table(run)
    yield from (Text(sentence) for sentence in measured_sentences(run, devices, cores))


def measured_sentences(run: RunSteps, devices: Sequence[str], cores: int) -> Iterator[str]:
    """Step times and losses, where it ran, and what the comparison with the unplaced model says."""
    predicted, measured = run.predicted.step_seconds, run.step_seconds
    over = measured / predicted if predicted else float("nan")
    counted, every = len(run.counted), len(run.seconds)
    of_steps = f"the median of {'the last ' * (counted < every)}{counted} of {every} steps (the shortest "
    of_steps = f"{of_steps}{seconds(float(run.counted.min()))})" if counted > 1 else f"in the last of {every} steps"
    taken = f"One step takes {seconds(measured)} measured, {of_steps}, and {seconds(predicted)} predicted"
    if other := _elsewhere(run, devices):
        name = run.predicted.problem.cluster.name
        yield f"{taken} on {name}: it ran on {other} instead, which says nothing of the prediction."
    else:
        yield f"{taken}: {ratio(over)} times as long as predicted."
    yield f"The loss was {run.losses[0]:.6g} in the first of {len(run.losses)} steps, {run.losses[-1]:.6g} in the last."
    if cores and cores < len(devices):
        yield f"{len(devices)} processes shared {cores} cores, so that the times say little about as many devices."
    if run.not_compared:
        yield f"It was NOT compared with the unplaced model: {run.not_compared}."
    if run.differences and run.is_equal:
        yield "Its first step is that of the unplaced model, but for rounding."
    elif run.differences:
        worst = max(run.differences, key=lambda each: each.relative)
        yield f"Its first step is NOT that of the unplaced model: {worst.what} differ, most in {worst.name!r}."


def passes_sentence(simulated: float, predicted: float) -> str:
    """Why a step that was simulated op by op, in seconds, is predicted otherwise for processes; empty if it is not.

    Of a pipeline each pass is predicted as a whole, which begins when its inputs are there; op by op, the process of a
    device issues the ops of a pass while their inputs are still on the way.
    """
    if abs(predicted - simulated) <= UNLIKE * simulated:
        return ""
    return (
        f"`place` and `simulate` say {seconds(simulated)}, where a process issues ops before their inputs arrive; the "
        f"{seconds(predicted)} predicted here are of passes that begin with their inputs."
    )


def _elsewhere(run: RunSteps, devices: Sequence[str]) -> str:
    """What it ran on in place of a device of another kind, the first of them; empty if it ran as planned."""
    is_cpu = run.predicted.problem.cluster.is_cpu
    return next((on for on, planned in zip(devices, is_cpu, strict=True) if planned != (on == "cpu")), "")


def _devices(run: MeasuredRun, devices: Sequence[str]) -> Table:
    heads = numbers(
        "busy, predicted", "measured", "idle, predicted", "measured", "memory beyond weights", *memory_heads(run)
    )
    made = table(run.predicted.problem.name, "device", "on", *heads)
    for row, on in zip(device_rows(run), devices, strict=True):
        times = (row.busy.predicted, row.busy.measured, row.idle.predicted, row.idle.measured)
        made.add_row(row.name, on, *map(seconds, times), memory(row.predicted_growth), *grown(run, row.measured_growth))
    return made


def memory_heads(run: RunSteps) -> list[str]:
    """Of the columns that say how memory has grown: what PyTorch has reserved is known of GPUs."""
    return ["measured", *["reserved"] * any(not math.isnan(each.reserved) for each in run.growth)]


def grown(run: RunSteps, growth: Growth) -> list[str]:
    """A device's cells of these columns."""
    values = [growth.held, growth.reserved][: len(memory_heads(run))]
    return [NOTHING if math.isnan(each) else memory(each) for each in values]


def _rows(title: str, what: str, count: str, rows: Sequence[TimeComparison], *, as_planned: bool) -> Table:
    """Ratios only if it ran on what was planned. What is sent takes time: 0 seconds are not measured."""
    has_bytes = any(row.bytes for row in rows)
    heads = count, *["sent"] * has_bytes, "predicted", "measured", *["ratio"] * as_planned
    made = table(title, what, *numbers(*heads))
    for row in rows:
        sent = [memory(row.bytes)] if has_bytes else []
        measured = seconds(row.measured) if row.measured or not row.bytes else NOTHING
        over = [ratio(row.ratio) if measured != NOTHING else NOTHING] * as_planned
        made.add_row(row.name, f"{row.count:,}", *sent, seconds(row.predicted), measured, *over)
    return made


def differences_table(run: RunSteps) -> Table:
    """How far the first step is from the unplaced model's, by kind of tensor."""
    most = max(each.tolerance for each in run.differences)
    caption = f"Relative: over the largest number of the tensor. Up to {most:g} counts as rounding."
    heads = numbers("largest difference", "relative")
    made = table("The first step, compared with that of the unplaced model", "what", *heads, "most in", caption=caption)
    for each in run.differences:
        style = "bold red" if not each.is_small else ""
        made.add_row(each.what, f"{each.largest:.2g}", f"{each.relative:.2g}", each.name or NOTHING, style=style)
    return made
