"""Recorded: an op takes as long as a file says, by its name or its kind, on each kind of device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envs.cost_models import Costs
from envs.op_costs.op_times import Times, known_seconds
from envs.op_costs.times_file import load_times
from graphs.errors import InputError
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem

CONFIGURATIONS = ("file=FILE",)

IN_GRAPH = "measured_seconds"


@dataclass(frozen=True, eq=False)
class Recorded:
    """Times that someone measured elsewhere; the launch hold of the cluster follows each op that takes time.

    Without a file, the graph's own `measured_seconds`, which hold on any device: only for devices of one kind.
    """

    source: str  # what a refusal calls the times
    times: Mapping[str, Times] | None = None  # by kind of device; None for those in the graph
    otherwise: str = "refuse"

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds. Raises InputError, naming ops and the remedy, for ops of unknown duration."""
        times = self.times if self.times is not None else _in_graph(problem)
        seconds = known_seconds(problem, times, source=self.source, remedy=self._remedy(), otherwise=self.otherwise)
        return Costs(seconds)

    def _remedy(self) -> str:
        add = "give a file, recorded:file=FILE" if self.times is None else "add them to the file"
        return f"{add}, or take the roofline's with otherwise=roofline"


def build(*, file: str = "", otherwise: str = "refuse") -> Recorded:
    """Times in a file (`envs/times_file.py`), or without one in the graph; of an unknown op "refuse" or "roofline"."""
    return Recorded(file or IN_GRAPH, load_times(Path(file)) if file else None, otherwise)


def _in_graph(problem: Problem) -> dict[str, Times]:
    kinds = sorted({device.kind for device in problem.cluster.devices})
    if len(kinds) > 1:
        raise InputError(
            f"the {IN_GRAPH} of {problem.graph.name!r} hold on one kind of device, but {problem.cluster.name!r} has "
            f"{' and '.join(kinds)}; give the times of each in a file, recorded:file=FILE"
        )
    return {kinds[0]: _measured}


def _measured(graph: OpGraph) -> Floats:
    return graph.measured_seconds
