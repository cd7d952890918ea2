"""What memory kinds of plans take: a table of all devices, and one of what takes it on the fullest."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from evaluation.records.formatting import memory, numbers, seconds, table
from evaluation.tables.plan_memory import PlanMemory
from evaluation.tables.reserved import reserved_sentences
from graphs.problem import Problem

MANY = 6  # devices that a line of a table can hold


def memory_tables(problem: Problem, plans: Sequence[PlanMemory]) -> RenderableType:
    """Both tables, the sentences of placers that made no plan, and their notes."""
    made = [plan for plan in plans if not plan.refused]
    tables: list[RenderableType] = [_per_device(problem, made), _fullest(problem, made)] if made else []
    refused = [Text(f"{plan.kind}: {plan.refused}", style="yellow") for plan in plans if plan.refused]
    said = [(plan, note.removeprefix(f"{plan.placer.partition(':')[0]}: ")) for plan in made for note in plan.notes]
    notes = [Text(f"{plan.kind}: {note}") for plan, note in said]
    return Group(*tables, *refused, *notes)


def _per_device(problem: Problem, plans: Sequence[PlanMemory]) -> Table:
    devices = problem.cluster.devices
    few = len(devices) <= MANY
    heads = [f"{device.name}\n{memory(device.usable_bytes)}" for device in devices] if few else ["least", "most"]
    found = table(problem.name, Column("plan", no_wrap=True), *numbers(*heads), "fits")
    for plan in plans:
        shown = plan.devices if few else sorted(plan.devices, key=lambda device: device.peak)[:: len(devices) - 1]
        fullest = plan.fullest
        verdict = (
            f"yes, {memory(-fullest.lacks)} left on {fullest.device}"
            if plan.fits
            else f"no, {memory(fullest.lacks)} too little on {fullest.device}"
        )
        cells = (Text(memory(device.peak), "red" if device.lacks > 0 else "") for device in shown)
        found.add_row(plan.kind, *cells, Text(verdict, "" if plan.fits else "yellow"))
    return found


def _fullest(problem: Problem, plans: Sequence[PlanMemory]) -> Table:
    caption = (
        "Optimizer: its state and gradients. Activations: with inputs; 2 of 8 are those of two of the step's eight "
        "micro-batches. In transit: copies of what other devices made, and parts of gradients in an all-reduce. "
        "Each row is at that plan's own peak: after a backward pass few activations are left. "
    )
    caption += " ".join(reserved_sentences(problem.cluster)) or (
        "Leave room for what is not counted: driver and framework (often 0.5 to 1 GiB of a card), fragmentation, what "
        "kernels need; `--reserve cuda` does."
    )
    heads = numbers("weights", "optimizer", "activations", "in transit", "step")
    found = table("Memory of the device with the least room", Column("plan", no_wrap=True), *heads, caption=caption)
    for plan in plans:
        device = plan.fullest
        of = f", {device.micro_batches} of {plan.micro_batches}" if device.micro_batches else ""
        found.add_row(
            plan.kind, memory(device.weights + device.versions), memory(device.state), memory(device.activations) + of,
            memory(device.received + device.sums), seconds(plan.step_seconds),
        )  # fmt: skip
    return found
