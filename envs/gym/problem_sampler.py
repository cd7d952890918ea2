"""ProblemSampler: the problems of an environment, one of which is chosen at each reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from envs.costs.costs import AUTO, CostModel, timed
from envs.gym.observed_problem import ObservedProblem
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import OpGraph
from graphs.problem import Problem

Graphs = OpGraph | str | Path | Sequence[OpGraph | str | Path]


class Keywords(TypedDict, total=False):
    """The keywords that all environments take; `Settings` describes them."""

    graph: Graphs | None
    cluster: Cluster | str | Path | None
    cost_model: CostModel | str | None
    priority: str
    obs: str
    features: str
    max_units: int | None
    render_mode: str | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every environment can be given, in addition to its problems."""

    graph: Graphs | None = None
    """Instead of problems: a graph or several, each an object or a name."""
    cluster: Cluster | str | Path | None = None
    """The cluster of these graphs, an object or a name."""
    cost_model: CostModel | str | None = None
    """What ops cost; what the problems say, or what follows from their graphs, unless given."""
    priority: str = "fifo"
    """Order of the queues, as in `Simulator`."""
    obs: str = "ids"
    """What an observation is: "ids", "dict" or "graph" (see `envs.gym.observations`)."""
    features: str = "by_device"
    """What "dict" and "graph" show of a unit: "by_device", "published" or "device_free"."""
    max_units: int | None = None
    """Pad observations to this number of units, to leave room for larger graphs; the largest graph's unless given."""
    render_mode: str | None = None
    """"ansi" for a Gantt chart in text, "rgb_array" for one in pixels."""


class ProblemSampler:
    """The problems that an environment chooses from.

    Given as problems, or as a graph (or several) on one cluster, by object or by name. Raises InputError for
    neither or both, for problems that differ in their number of devices, as an action is a device, or for another
    objective than the step time, which is what rewards are made of.
    """

    def __init__(self, problems: Problem | Sequence[Problem] | None, settings: Settings) -> None:
        self._settings = settings
        self.problems = [self._observed(problem) for problem in _problems(problems, settings)]
        for each in self.problems:
            each.problem.check_step_time("an environment", "a problem with the objective step-time")
        counts = {len(each.problem.cluster) for each in self.problems}
        if len(counts) > 1:
            raise InputError(
                f"an environment's problems must have equally many devices, got {sorted(counts)}; "
                "make one environment for each number of devices"
            )
        self.devices = counts.pop()
        self.units = max(len(each.problem.units) for each in self.problems)
        self.edges = max(len(each.problem.units.edges) for each in self.problems)
        limit_torch_threads()  # for the policies that decide in this environment

    @property
    def max_units(self) -> int:
        """The number of units that observations are padded to. Raises InputError if the largest problem has more."""
        asked = self._settings.max_units
        if asked is not None and asked < self.units:
            raise InputError(f"max_units is {asked}, but the largest graph has {self.units} units")
        return asked or self.units

    def choose(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> tuple[int, ObservedProblem]:
        """The problem that the options of a reset ask for, {"problem": index} or {"graph": graph}, else a random one.

        A graph that is not among the environment's own has index -1 and stands on the first problem's cluster.
        """
        limit_torch_threads()  # torch may have been imported since
        options = options or {}
        strange = options.keys() - {"problem", "graph"}
        if strange:
            raise InputError(f"unknown reset option {min(strange)!r}; there are: problem, graph")
        if "graph" in options:
            return self._problem_of(options["graph"])
        index = options.get("problem", None)
        index = int(rng.integers(len(self.problems))) if index is None else int(index)
        if not 0 <= index < len(self.problems):
            raise InputError(f"there is no problem {index}; this environment has 0 to {len(self.problems) - 1}")
        return index, self.problems[index]

    def _problem_of(self, what: OpGraph | str) -> tuple[int, ObservedProblem]:
        known = {each.problem.graph.name: index for index, each in enumerate(self.problems)}
        if isinstance(what, str) and what in known:
            return known[what], self.problems[known[what]]
        first = self.problems[0].problem
        graph = _load_graph(what)
        for index, each in enumerate(self.problems):
            if each.problem.graph.fingerprint == graph.fingerprint:
                return index, each
        problem = Problem(graph, first.cluster, first.optimizer)
        model = self._settings.cost_model
        return -1, self._observed(problem if model is None else timed(problem, model))

    def _observed(self, problem: Problem) -> ObservedProblem:
        return ObservedProblem.of(problem, self._settings.priority)


def _problems(problems: Problem | Sequence[Problem] | None, settings: Settings) -> list[Problem]:
    graph, cluster, model = settings.graph, settings.cluster, settings.cost_model
    if problems is not None and graph is None and cluster is None:
        found = [problems] if isinstance(problems, Problem) else list(problems)
        found = found if model is None else [timed(problem, model) for problem in found]
    elif problems is None and graph is not None and cluster is not None:
        graphs = [graph] if isinstance(graph, OpGraph | str | Path) else list(graph)
        where = _load_cluster(cluster)
        found = [timed(Problem(_load_graph(what), where), model or AUTO) for what in graphs]
    else:
        raise InputError("an environment needs either problems=, or graph= and cluster=")
    if not found:
        raise InputError("an environment needs at least one problem")
    return found


def _load_graph(what: OpGraph | str | Path) -> OpGraph:
    if isinstance(what, OpGraph):
        return what
    from graphs.load import load_graph  # a graph's name may have to be captured: pay for that only if asked

    return load_graph(what)


def _load_cluster(what: Cluster | str | Path) -> Cluster:
    if isinstance(what, Cluster):
        return what
    from graphs.load import load_cluster  # as above

    return load_cluster(what)
