"""What a plan does to its devices: a table and a chart for the terminal, and sentences."""

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from envs.costs.costs import timing
from envs.expansion.expanded import Expansion
from envs.expansion.layout import Layout
from envs.orders import GIVEN
from envs.plans.placer_result import PlacerResult
from envs.plans.schedule import AS_READY
from envs.simulation.robustness import Robustness
from envs.timelines.timeline import Timeline
from evaluation.records.formatting import memory, numbers, ratio, seconds, share, table
from evaluation.records.step_errors import timing_remarks
from evaluation.tables.loop_sentences import loop_sentences
from evaluation.tables.other_plans import OtherPlans
from evaluation.tables.reserved import reserved_sentences
from evaluation.tables.split_rows import split_rows, split_summary
from evaluation.tables.split_table import split_table
from evaluation.tables.step_chart import StepChart
from evaluation.tables.step_summary import StepSummary, kind_of
from evaluation.tables.summary_rows import held_rows, sent_rows, time_rows
from graphs.foundation.errors import listed
from graphs.problem import Problem
from graphs.runtime import PROGRAM

BAR = 10  # characters
MOST_DEVICES = 8  # that a summary names


def plan_table(
    timeline: Timeline, lower_bound_seconds: float, program_seconds: float, *, objective: Sequence[str] = (),
    found: PlacerResult | None = None,
) -> RenderableType:  # fmt: skip
    """What a plan asks of each device, what each does when, and what the step takes, also in PyTorch's own order.

    And where time and memory go: on what each device spends the step, and what is largest of what is sent and held.
    Of a plan that has a split also by what that divides ops. First is a sentence on what it gains over one device, and
    next to last what an engineer would take instead: of a search that `found` the plan, as it compared that. Sentences
    begin with the `objective`, if that is not the step.
    """
    problem, summary = timeline.problem, StepSummary.of(timeline)
    heads = numbers("used / limit", state(problem), "activations at peak")
    heads[0].no_wrap = True
    devices = table(problem.name, "device", Column("memory", no_wrap=True), *heads)
    for row, device, peak in zip(device_rows(timeline), problem.cluster.devices, timeline.peak_bytes, strict=True):
        name, used, *others = row
        style = "bold red" if peak > device.usable_bytes else ""
        devices.add_row(name, _bar(peak / max(device.usable_bytes, 1.0)), Text(used, style=style), *others)
    said = plan_sentences(timeline, lower_bound_seconds, program_seconds)
    expansion, spent = timeline.expansion, _spent_table(*time_rows(summary.time))
    splits = [split_table(split_rows(expansion.given, expansion.plan))] if expansion and expansion.plan.split else []
    said[1:1] = loop_sentences(timeline)
    beside = OtherPlans.of(timeline, found)
    taken = f"One step takes {seconds(timeline.step_seconds)}."
    first = f"{taken} {summary.over_alone}" if beside is None else beside.headline()
    rivals = [] if beside is None else [beside.table()]
    return Group(
        Text(first, style="bold"), devices, StepChart(timeline), spent, *_largest_tables(summary), *splits, *rivals,
        *map(Text, (*objective, *said)),
    )  # fmt: skip


def plan_lines(timeline: Timeline, placer: str) -> str:
    """The plan in four lines: whose it is, the step, the memory that each device needs, and whether it fits."""
    by = f", by {placer}" if placer else ""
    used = [f"{name} {used}" for name, used, *_ in device_rows(timeline)]
    return "\n".join([
        f"{timeline.problem.name}{by}",
        f"One step takes {seconds(timeline.step_seconds)}. {StepSummary.of(timeline).over_alone}",
        f"Memory, used / limit: {listed(used, MOST_DEVICES)}.",
        "It fits." if timeline.fits else f"It does not fit: {timeline.overflow()}.",
    ])  # fmt: skip


def device_rows(timeline: Timeline) -> list[tuple[str, ...]]:
    """Of each device: name, memory used and its limit, and of that weights and their state, and activations."""
    rows: list[tuple[str, ...]] = []
    for row, device in enumerate(timeline.problem.cluster.devices):
        peak = timeline.peak(row)
        used = f"{memory(peak.total)} / {memory(device.usable_bytes)}"
        rows.append((device.name, used, memory(peak.state), peak.parts(memory)))
    return rows


def _spent_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    spent = table("What the step is spent on", heads[0], *numbers(*heads[1:]))
    for row in rows:
        spent.add_row(*row)
    return spent


def _largest_tables(summary: StepSummary) -> list[RenderableType]:
    """Of what is sent, if anything is, and of what is held."""
    tables: list[RenderableType] = []
    for heads, rows in (sent_rows(summary), held_rows(summary)):
        name, *others, last = heads
        ends = [last] if "takes" not in heads else [others.pop(), last]
        made = table("", Column(name, overflow="fold"), *others, *numbers(*ends))
        for row in rows:
            made.add_row(*map(Text, row))
        tables += [made] if rows else []
    return tables


def plan_sentences(timeline: Timeline, lower_bound_seconds: float, program_seconds: float) -> list[str]:
    """The lower bound and the step's ratio to it, its order, the busiest link and, if it does not fit, where."""
    over_bound = timeline.step_seconds / lower_bound_seconds if lower_bound_seconds > 0 else np.nan
    busiest, carries = max(link_shares(timeline).items(), key=lambda item: item[1], default=("", 0.0))
    return [
        f"A lower bound for {kind_of(timeline)} is {seconds(lower_bound_seconds)}, and the step {ratio(over_bound)} "
        "times as long.",
        *([] if timeline.expansion is None else [schedule_sentence(timeline.expansion)]),
        *([] if timeline.expansion is None else unknown_batch(timeline.expansion)),
        *loss_of_forward_pass(timeline.problem),
        f"Simulated with the costs of the runtime {timeline.problem.runtime.name}.",
        order_sentence(timeline, program_seconds),
        f"The busiest link, {busiest}, carries data {share(carries)} of the step."
        if busiest
        else "Nothing is sent between devices.",
        f"Cost model: {timing(timeline.problem)}.",
        *timing_remarks(timeline.problem),
        *reserved_sentences(timeline.problem.cluster),
        *([] if timeline.fits else [_overfull_sentence(timeline)]),
    ]


def _overfull_sentence(timeline: Timeline) -> str:
    """Which devices need more than they have; how much is in the table of devices."""
    names = [timeline.problem.cluster.devices[row].name for row in timeline.overfull]
    return f"This plan does not fit: too little memory on {listed(names)}."


def schedule_sentence(expansion: Expansion) -> str:
    """What a plan has that is no op placement: stages and their devices, micro-batches, and how these are run."""
    schedule, stages = expansion.plan.schedule, Layout(expansion.given, expansion.plan).stage_devices
    of_stages = [len(each) for each in stages]
    devices = ", ".join(map(str, dict.fromkeys(of_stages) if len(set(of_stages)) == 1 else of_stages))
    each_of = " each" * (len(stages) > 1 and len(set(of_stages)) == 1)
    said = [
        f"Schedule: {schedule.micro_batches} micro-batch{'es' * (schedule.micro_batches > 1)} through {len(stages)} "
        f"stage{'s' * (len(stages) > 1)} on {devices} device{'s' * (devices != '1')}{each_of}",
        "ops as they are ready" if schedule.order == AS_READY else f"passes in the order {schedule.order}",
    ]
    for stage, shares in enumerate(schedule.shares):
        if shares:
            of_stage = f" of stage {stage}" * (len(stages) > 1)
            said.append(f"replicas{of_stage} take {':'.join(map(str, shares))} of each micro-batch")
    if expansion.plan.split:
        said.append(split_summary(expansion.given, expansion.plan))
    if schedule.recompute:
        how = " block by block" if schedule.recompute_at == "block" else ""
        again = f"stage{'s' * (len(schedule.recompute) > 1)} {', '.join(map(str, schedule.recompute))}"
        said.append(f"{again} recomputed{how}")
    if schedule.zero:
        groups = f" in groups of {schedule.shard_group} replicas" if schedule.shard_group else ""
        said.append(f"ZeRO-{schedule.zero}{groups}")
    if schedule.offload:
        said.append("weights updated by CPUs (offload)")
    if schedule.update == "micro_batch":
        said.append("updates after every micro-batch")
    return "; ".join(said) + "."


def unknown_batch(expansion: Expansion) -> list[str]:
    """What a plan that divides the batch takes for granted where nobody has said how many samples a step has."""
    plan, graph = expansion.plan, expansion.given.graph
    parts = plan.schedule.micro_batches * max(map(len, plan.devices), default=1)
    if graph.samples or parts < 2:
        return []
    return [
        f"How many samples a step of {graph.name} has is not known: its batch is assumed to divide into any number of "
        "equal parts; say it, as in --batch 32 or FILE:batch=32."
    ]


def loss_of_forward_pass(problem: Problem) -> list[str]:
    """That a forward pass ends in a loss, as a model of transformers' does whose example inputs have labels."""
    if problem.graph.is_training or not any(kind.startswith("aten.nll_loss") for kind in problem.graph.kinds):
        return []
    return [
        "The forward pass includes the loss: without labels among its inputs a model of transformers computes none."
    ]


def order_sentence(timeline: Timeline, program_seconds: float) -> str:
    """The order of ops under which a step time holds, and what the same plan takes in PyTorch's own."""
    if timeline.order == PROGRAM.name:
        return "Order: program, PyTorch's own."
    named = "a number for each op" if timeline.order == GIVEN else timeline.order
    over = program_seconds / timeline.step_seconds if timeline.step_seconds else np.nan
    own = f"{seconds(program_seconds)} ({ratio(over)} times as long)"
    same = "placement" if timeline.expansion is None else "plan"
    return f"Order: {named}. In PyTorch's own order ({PROGRAM}) the same {same} takes {own}."


def robustness_sentence(found: Robustness) -> str:
    """How a plan fares under noise, and without contention; and how it would, first come, first served."""
    said = _robustness(found)
    if found.by_fifo is None:
        return said
    fifo = _robustness(found.by_fifo)
    taken = seconds(found.by_fifo.step_seconds)
    return f"{said} First come, first served, the same plan takes {taken}: {fifo[0].lower()}{fifo[1:]}"


def _robustness(found: Robustness) -> str:
    median, worst = found.median_seconds / found.step_seconds, found.worst_seconds / found.step_seconds
    return (
        f"With {found.noise:.0%} of noise on every op and transfer it takes {seconds(found.median_seconds)} in the "
        f"median of {found.draws} draws ({ratio(median)} times as long) and {seconds(found.worst_seconds)} at worst "
        f"({ratio(worst)} times); without noise, if transfers did not queue, {seconds(found.free_seconds)}."
    )


def state(problem: Problem) -> str:
    """What a device holds for the whole step."""
    return "parameters, gradients, optimizer" if problem.graph.is_training else "parameters"


def link_shares(timeline: Timeline) -> dict[str, float]:
    """Of each channel that was used, the share of the step during which it carried something."""
    shares: dict[str, float] = {}
    for row in timeline.rows():
        if row.link:  # channels of the same name: the busier
            shares[row.label] = max(shares.get(row.label, 0.0), row.busy_seconds / (timeline.step_seconds or 1.0))
    return shares


def _bar(filled: float) -> Text:
    cells = min(BAR, round(filled * BAR))
    colour = "red" if filled > 1 else "yellow" if filled > 0.9 else "green"
    return Text.assemble(("█" * cells, colour), ("░" * (BAR - cells), "dim"), f" {share(filled):>4}")
