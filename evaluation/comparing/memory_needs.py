"""MemoryNeeds: what memory each kind of plan takes for a problem, and whether any of them fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.formatting import memory
from evaluation.records.printed import Printed
from evaluation.tables.memory_tables import memory_tables
from evaluation.tables.plan_memory import DeviceMemory, PlanMemory, kind_as_found
from graphs.foundation.errors import DoesNotFitError, InputError, listed
from graphs.foundation.progress import progress
from graphs.op_graph.optimizers import NONE
from graphs.op_graph.precision import SINGLE
from graphs.problem import Problem
from placers.contract.placer import Placer


@dataclass(frozen=True)
class MemoryNeeds(Printed):
    """Kinds of plans for a problem, and the memory that each takes."""

    problem: Problem
    plans: tuple[PlanMemory, ...]

    @classmethod
    def of(cls, problem: Problem, placers: Sequence[tuple[str, Placer]], *, budget: int, seed: int = 0) -> MemoryNeeds:
        """Let each placer, with the kind of its plans, place the problem, and simulate its plan.

        A plan that turns out to be of a kind that is there already is left out.
        """
        plans: list[PlanMemory] = []
        for kind, placer in progress(placers, "planning", unit="plan", leave=False):
            found = _memory(problem, kind, placer, budget, seed)
            if found.kind == kind or all(found.kind != plan.kind for plan in plans):
                plans.append(found)
        return cls(problem, tuple(plans))

    def require_fit(self) -> None:
        """Raise DoesNotFitError, naming the plan that lacks least and what to try, if no plan fits."""
        if any(plan.fits for plan in self.plans):
            return
        name, cluster = self.problem.graph.name, self.problem.cluster
        made = [plan for plan in self.plans if not plan.refused]
        if not made:
            raise DoesNotFitError(f"there is no plan for {name!r} on {cluster.name!r}: {self.plans[0].refused}")
        best = min(made, key=lambda plan: plan.fullest.lacks)
        raise DoesNotFitError(
            f"none of these plans fits {name!r} on {cluster.name!r}: least is lacking with {best.kind}, "
            f"{memory(best.fullest.lacks)} on {best.fullest.device}. Try `placelab place`, which searches for others, "
            f"{listed(_remedies(self.problem, best.fullest))}, or more or larger devices"
        )

    def to_json(self) -> dict[str, Any]:
        """Every plan with every device, in bytes and seconds."""
        plans = [_plain(plan) for plan in self.plans]
        return {"problem": self.problem.name, "optimizer": self.problem.optimizer, "plans": plans}

    def _shown(self) -> RenderableType:
        return memory_tables(self.problem, self.plans)


def _remedies(problem: Problem, fullest: DeviceMemory) -> list[str]:
    """What makes room on a device by itself: less of what is large there."""
    graph, remedies = problem.graph, []
    if fullest.weights + fullest.state <= fullest.limit:
        remedies += ["a smaller batch", "more micro-batches"]
    if fullest.state > fullest.lacks and problem.optimizer not in {NONE, "sgd"}:
        remedies += ["`optimizer='sgd'`"]
    if graph.calls and SINGLE in (graph.weight_precisions or (SINGLE,)):  # others than captured keep theirs
        remedies += ["`precision='bf16'`"]
    return remedies or ["a smaller model"]


def _memory(problem: Problem, kind: str, placer: Placer, budget: int, seed: int) -> PlanMemory:
    try:
        placed = SimulatedPlan.by(placer, problem, seed=seed, budget=budget)
    except (InputError, DoesNotFitError) as error:
        return PlanMemory(kind, placer.name, refused=str(error))
    schedule = placed.plan.schedule
    return PlanMemory(
        kind_as_found(kind, placed.plan), placer.name, DeviceMemory.of(placed.timeline), schedule.micro_batches,
        placed.timeline.step_seconds, placed.result.notes,
    )  # fmt: skip


def _plain(plan: PlanMemory) -> dict[str, Any]:
    named = {"kind": plan.kind, "placer": plan.placer}
    if plan.refused:
        return named | {"refused": plan.refused}
    devices = [
        asdict(device) | {"limit": device.limit if math.isfinite(device.limit) else None} for device in plan.devices
    ]
    timed = {"notes": list(plan.notes), "micro_batches": plan.micro_batches, "step_seconds": plan.step_seconds}
    return named | {"fits": plan.fits, **timed, "devices": devices}
