"""ProblemSampler: the problems of an environment; each reset chooses one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from envs.costs.costs import AUTO, CostModel, timed
from envs.prepared_problem import PreparedProblem
from envs.replacement.evaluator import replacement_of
from graphs.cluster import Cluster
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import OpGraph
from graphs.problem import Problem, objective_of
from graphs.runtime import default_runtime, runtime_of

Graphs = OpGraph | str | Path | Sequence[OpGraph | str | Path]


class ProblemKeywords(TypedDict, total=False):
    """The keywords that all environments take; `ProblemSettings` describes them."""

    graph: Graphs | None
    cluster: Cluster | str | Path | None
    cost_model: CostModel | str | None
    runtime: str
    order: str
    objective: str
    render_mode: str | None


class Keywords(ProblemKeywords, total=False):
    """The keywords that environments take in which each unit is placed; `EnvironmentSettings` describes them."""

    obs: str
    features: str
    max_units: int | None


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """What every environment can be given, in addition to its problems."""

    graph: Graphs | None = None  # instead of problems: a graph or several, each an object or a name
    cluster: Cluster | str | Path | None = None  # of these graphs, an object or a name
    cost_model: CostModel | str | None = None  # unless given, as the problems say, or as the verbs' default
    runtime: str = ""  # how plans are run (`graphs.runtime`), unless as the problems say, or as the verbs' default
    order: str = ""  # the rule by which ops run (`envs.orders`), unless the runtime's
    objective: str = ""  # what is minimised, unless as the problems say: `replacement:plan=FILE` of running models
    render_mode: str | None = None  # "ansi" for a Gantt chart in text, "rgb_array" for one in pixels


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings(ProblemSettings):
    """What an environment can be given in which each unit is placed."""

    obs: str = "ids"  # what an observation is: "ids", "dict" or "graph" (`envs.gym.observations`)
    features: str = (
        "by_device"  # what "dict" and "graph" show of a unit; also "published", "device_free", "replacement"
    )
    max_units: int | None = None  # pad observations to this number of units; to the largest graph's unless given


class ProblemSampler:
    """The problems that an environment chooses from.

    Given as problems, or as a graph (or several) on one cluster, by object or by name. Raises InputError for
    neither or both, or for another objective than the step time, on which rewards depend; with `measured` it may be
    the measured one, and problems `of_running` models have the objective `replacement`.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem] | None, settings: ProblemSettings, *, measured: bool = True,
        of_running: bool = False,
    ) -> None:  # fmt: skip
        self._settings = settings
        found = _problems(problems, settings)
        self.problems = [PreparedProblem(each) for each in found]
        for prepared in self.problems:
            if of_running:
                replacement_of(prepared.evaluator, prepared.problem)
            else:
                remedy = "a problem with the objective step-time"
                prepared.problem.check_step_time("an environment", remedy, measured=measured)
        self.devices = max(len(each.cluster) for each in found)
        limit_torch_threads()  # for the policies that decide in this environment

    def choose(
        self, rng: np.random.Generator, options: Mapping[str, Any] | None, others: Sequence[str] = ()
    ) -> tuple[int, PreparedProblem]:
        """The problem that the options of a reset ask for, {"problem": index} or {"graph": graph}, else a random one.

        A graph that is not among the environment's own has index -1 and is placed on the first problem's cluster.
        Raises InputError for an option that is neither of these nor one of the `others`.
        """
        limit_torch_threads()  # torch may have been imported since
        options = options or {}
        known = ("problem", "graph", *others)
        if strange := options.keys() - set(known):
            raise InputError(f"unknown reset option {min(strange)!r}; there are: {', '.join(known)}")
        if "graph" in options:
            return self._problem_of(options["graph"])
        asked = options.get("problem")
        index = int(rng.integers(len(self.problems)) if asked is None else asked)
        if not 0 <= index < len(self.problems):
            raise InputError(f"there is no problem {index}; this environment has 0 to {len(self.problems) - 1}")
        return index, self.problems[index]

    def _problem_of(self, what: OpGraph | str) -> tuple[int, PreparedProblem]:
        known = {each.problem.graph.name: index for index, each in enumerate(self.problems)}
        if isinstance(what, str) and what in known:
            return known[what], self.problems[known[what]]
        graph = load_graph(what)
        for index, each in enumerate(self.problems):
            if each.problem.graph.fingerprint == graph.fingerprint:
                return index, each
        first, model = self.problems[0].problem, self._settings.cost_model
        problem = Problem(graph, first.cluster, first.optimizer, runtime=first.runtime)
        is_named = self._settings.graph is not None
        return -1, PreparedProblem(timed(problem, model or (AUTO if is_named else None)))


class UnitSampler(ProblemSampler):
    """The problems of an environment in which each unit is placed.

    Raises InputError, too, for problems that differ in their number of devices, as an action is a device, or if the
    largest problem has more than `max_units`.
    """

    def __init__(
        self, problems: Problem | Sequence[Problem] | None, settings: EnvironmentSettings, *, of_running: bool = False
    ) -> None:
        super().__init__(problems, settings, of_running=of_running)
        counts = {len(each.problem.cluster) for each in self.problems}
        if len(counts) > 1:
            raise InputError(
                f"an environment's problems must have equally many devices, got {sorted(counts)}; "
                "make one environment for each number of devices"
            )
        units = max(len(each.problem.units) for each in self.problems)
        if settings.max_units is not None and settings.max_units < units:
            raise InputError(
                f"max_units is {settings.max_units}, but the largest graph has {units} units; make it that or more"
            )
        self.max_units = settings.max_units or units  # to which observations are padded
        self.edges = max(len(each.problem.units.edges) for each in self.problems)


def _problems(problems: Problem | Sequence[Problem] | None, settings: ProblemSettings) -> list[Problem]:
    graph, cluster, model = settings.graph, settings.cluster, settings.cost_model
    if problems is not None and graph is None and cluster is None:
        found = [problems] if isinstance(problems, Problem) else list(problems)
        found = found if model is None else [timed(problem, model) for problem in found]
    elif problems is None and graph is not None and cluster is not None:
        graphs = [graph] if isinstance(graph, OpGraph | str | Path) else list(graph)
        where = load_cluster(cluster)
        loaded = [load_graph(what) for what in graphs]
        made = [Problem(each, where, runtime=default_runtime(each, where)) for each in loaded]
        found = [timed(each, model or AUTO) for each in made]
    else:
        raise InputError("an environment needs either problems=, or graph= and cluster=")
    if not found:
        raise InputError("an environment needs at least one problem")
    return [_run_as_asked(problem, settings) for problem in found]


def _run_as_asked(problem: Problem, settings: ProblemSettings) -> Problem:
    if settings.objective:
        problem = replace(problem, objective=objective_of(settings.objective))
    if not settings.runtime and not settings.order:
        return problem  # the same object: measurements are kept by object
    runtime = runtime_of(settings.runtime) if settings.runtime else problem.runtime
    return replace(problem, runtime=runtime.with_knobs(order=settings.order) if settings.order else runtime)
