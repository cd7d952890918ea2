"""JournalEntry: a record with the plan that it is of, by units and not by ops, so that it stays small."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np

from envs.placer_result import PlacerResult
from envs.plan import Plan
from envs.plan_file import save_plan
from envs.simulation.simulator import RULES, Outcome
from evaluation.record import Record
from graphs.foundation.errors import InputError
from graphs.problem import Problem

LONGEST = 80  # characters of a problem or placer in the name of a file


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A record, and where the units of its problem's graph are."""

    record: Record
    rules: int = RULES  # of the simulator that timed it
    graph: str  # fingerprint
    cluster: str  # fingerprint
    devices: tuple[int, ...]  # (units,) indices of the cluster's devices

    def plan(self, problem: Problem) -> Plan:
        """The plan, for its problem. Raises InputError for a problem with another graph or cluster."""
        given = (problem.graph.fingerprint, problem.cluster.fingerprint)
        if given != (self.graph, self.cluster):
            raise InputError(
                f"the plan of {self.record.placer!r} for {self.record.problem!r} (graph {self.graph}, cluster "
                f"{self.cluster}) is none for {problem.name!r} (graph {given[0]}, cluster {given[1]})"
            )
        record, units = self.record, problem.graph.num_units
        if len(self.devices) != units or not set(self.devices) <= set(range(len(problem.cluster))):
            raise InputError(
                f"the plan of {record.placer!r} for {record.problem!r} is damaged: it is for other devices"
            )
        return Plan.of_units(problem, self.devices)

    def save(self, problem: Problem, folder: Path) -> Path:
        """Write the plan for its problem as a plan file, whose name is its own. Raises InputError as `plan`."""
        record = self.record
        outcome = Outcome(record.step_seconds, np.array(record.peak_bytes), record.fits)
        path = folder / f"{_safe(record.problem)}.{_safe(record.placer)}.seed{record.seed}.{record.key[:8]}.plan.json"
        result = PlacerResult(self.plan(problem), record.placer, record.seed, record.simulations)
        save_plan(result, problem, outcome, path)
        return path


def _safe(name: str) -> str:
    """What any file system takes as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_=@+,-]+", "_", name)[:LONGEST].strip("_") or "_"
