"""Recorded: an op takes as long as a file says, by its name or its kind, on each kind of device."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.costs.costs import Costs
from envs.costs.op_times import ANY, known_seconds
from envs.costs.times_file import Table, load_times, seconds_in
from graphs.cluster import Device
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem

CONFIGURATIONS = ("file=FILE",)
IN_GRAPH = "measured_seconds"


@dataclass(frozen=True, eq=False)
class Recorded:
    """Times that someone measured elsewhere; the cluster's launch follows each op that takes time.

    Without a file they are those in the graph: its times by name or kind of device and, for ops without these, its
    times on any device, which hold only where the cluster's devices are alike.
    """

    source: str  # what a refusal calls the times
    tables: Mapping[str, Table] | None = None  # by name or kind of device; None: the times in the graph
    otherwise: str = "refuse"

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds. Raises InputError, naming ops and the remedy, for ops of unknown duration."""
        if self.tables is None:
            times, remedy = _in_graph(problem), "give a file, recorded:file=FILE"
        else:
            times = {key: seconds_in(table, problem.graph) for key, table in self.tables.items()}
            remedy = "add them to the file"
        remedy += ", or take the roofline's with otherwise=roofline"
        return Costs(known_seconds(problem, times, source=self.source, remedy=remedy, otherwise=self.otherwise))


def build(*, file: str = "", otherwise: str = "refuse") -> Recorded:
    """Times in a file (`envs/costs/times_file.py`), or in the graph; of an unknown op "refuse" or "roofline"."""
    return Recorded(file or IN_GRAPH, load_times(Path(file)) if file else None, otherwise)


def _in_graph(problem: Problem) -> dict[str, Floats]:
    """(ops,) the times in the graph, by name or kind of device, or for ANY device.

    A time for any device holds where the devices are alike, or where the op has times of its own on others. Raises
    InputError for an op that has only such a time where devices differ.
    """
    graph, devices = problem.graph, problem.cluster.devices
    alike = len({(device.kind, device.flops_per_second, device.bytes_per_second) for device in devices}) == 1
    distinguished = ~np.isnan([np.full(len(graph), np.nan), *graph.measured_on.values()]).all(axis=0)
    only_any = ~distinguished & ~np.isnan(graph.measured_seconds)
    everywhere = np.ones((graph.num_units, len(devices)), np.bool_)
    allowed = everywhere if problem.allowed is None else problem.allowed
    refused = (only_any[:, None] & allowed[graph.units]).any(axis=0)  # (devices,)
    if not alike and refused.any():
        raise _hold_on_one_kind(problem, devices[int(refused.argmax())])
    return {**graph.measured_on, ANY: np.where(alike | distinguished, graph.measured_seconds, np.nan)}


def _hold_on_one_kind(problem: Problem, device: Device) -> InputError:
    kinds = sorted({device.kind for device in problem.cluster.devices})
    has = " and ".join(kinds) if len(kinds) > 1 else f"{kinds[0]}s of different speeds"
    return InputError(
        f"the {IN_GRAPH} of {problem.graph.name!r} hold on one kind of device, but {problem.cluster.name!r} has {has}; "
        f'give the times by device in the graph, "{IN_GRAPH}": {{"{device.name}": 0.001, ...}}, or in a file, '
        "recorded:file=FILE"
    )
