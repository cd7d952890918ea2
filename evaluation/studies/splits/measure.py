"""What each placer's plan takes, in the engine, and what the fullest device holds for what."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from envs.plan import Plan
from envs.simulation.simulator import simulate
from envs.timeline import Timeline
from evaluation.plan_memory import DeviceMemory
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.splits.cases import problem_of
from evaluation.studies.timed_plans import timed_plan
from graphs.foundation import by_name
from graphs.problem import Problem

OURS = "split_search"
RIVALS = ("data_parallel", "tensor_parallel", "tofu", "optcnn")
FEW = 8  # simulations for a rival that chooses by them, as data parallelism its micro-batches


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes on the fullest device when it holds most."""

    peak: float
    state: float  # weights, gradients, optimizer state
    outputs: float  # made there
    buffers: float  # copies of what other devices made, and parts of sums on their way

    @classmethod
    def of(cls, timeline: Timeline) -> Held:
        """Of a simulated step."""
        most = max(DeviceMemory.of(timeline), key=lambda each: each.peak)
        return cls(
            peak=most.peak, state=most.weights + most.state, outputs=most.activations + most.versions,
            buffers=most.received + most.sums,
        )  # fmt: skip


class Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan."""

    placer: str
    seconds: float  # of a step, in the engine
    fits: bool
    held: Held
    moved: float  # bytes
    took: float  # processor seconds of planning
    notes: tuple[str, ...]


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All plans of a model."""

    model: str
    spec: str
    cluster: str
    devices: int
    budget: int
    alone: Held  # all on one device, whether it fits there or not
    fits_alone: bool
    plans: tuple[Placed, ...]  # ours last


def jobs(out: Path, models: dict[str, str], cluster: str, budget: int) -> list[SavedJob]:
    """A job per model."""
    return [
        SavedJob(
            out / PIECES / f"{budget}-{cluster}-{name}.json".replace(" ", "_"),
            partial(measured, name, spec, cluster, budget),
        )
        for name, spec in models.items()
    ]


def measured(model: str, spec: str, cluster: str, budget: int) -> Measured:
    """All placers on a model."""
    problem = problem_of(spec, cluster)
    alone = simulate(problem, Plan(((0,),) * len(problem.graph)))
    plans = [*(_placed(problem, name, FEW) for name in RIVALS), _placed(problem, OURS, budget)]
    return Measured(
        model=model, spec=spec, cluster=cluster, devices=len(problem.cluster), budget=budget, alone=Held.of(alone),
        fits_alone=alone.fits, plans=tuple(plans),
    )  # fmt: skip


def _placed(problem: Problem, placer: str, budget: int) -> Placed:
    result, timeline, took = timed_plan(by_name.build("placers", placer), problem, budget)
    return Placed(
        placer=placer, seconds=timeline.step_seconds, fits=timeline.fits, held=Held.of(timeline),
        moved=float(timeline.problem.graph.moved_bytes[timeline.transfers.output].sum()), took=took,
        notes=tuple(result.notes),
    )  # fmt: skip
