"""Conditions: how plans of a problem are run and what times their ops, in words: what a plan is made for."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from envs.costs.costs import timed, timing
from graphs.cluster import Cluster
from graphs.devices.reserve import NONE, reserve_in, reserve_of
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import IDEAL, Runtime, runtime_of


class Conditions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a plan is made for in addition to a graph and a cluster, each as the verbs' flag of the name has it.

    What is empty is not said.
    """

    runtime: str = ""  # how plans are run, with knobs: order and host (`graphs.runtime`)
    precision: str = ""  # that of training (`graphs.transforms.mixed_precision`)
    cost_model: str = ""
    optimizer: str = ""
    reserve: str = ""  # memory of each GPU that tensors cannot have (`graphs.devices.reserve`); "": the cluster's

    @classmethod
    def of(cls, problem: Problem) -> Conditions:
        """Those of a problem. Raises InputError as `timing`."""
        graph = problem.graph
        return cls(
            runtime=_named(problem.runtime),
            precision=graph.captured_in,
            cost_model="" if problem.op_seconds is not None and not problem.timed_by else timing(problem),
            optimizer=problem.optimizer if graph.is_training else "",
            reserve=reserve_in(problem.cluster) or NONE,
        )

    def problem(self, graph: OpGraph, cluster: Cluster) -> Problem:
        """A problem under these, of a graph in their precision. Raises InputError for what there is not."""
        reserve = reserve_of(self.reserve or NONE)
        found = Problem(
            graph,
            cluster if reserve is None else reserve.on(cluster),
            self.optimizer or "adam",
            runtime=runtime_of(self.runtime or IDEAL.name),
        )
        return timed(found, self.cost_model or None)

    def steps_as(self, problem: Problem) -> Problem:
        """The problem with the runtime and the cost model of these, which decide what a step takes.

        It is the same object if it has them already. Raises InputError for a runtime or a cost model that there is not.
        """
        runtime = runtime_of(self.runtime) if self.runtime else problem.runtime
        found = problem if runtime == problem.runtime else replace(problem, runtime=runtime)
        return found if self.cost_model in ("", timing(problem)) else timed(found, self.cost_model)

    def check_no_code(self) -> None:
        """Raise InputError for code that conditions in a file name, unless the user allows it (`named_in_file`)."""
        named_in_file(self.cost_model)
        if self.runtime:
            named_in_file(runtime_of(self.runtime).order.name)


def _named(runtime: Runtime) -> str:
    """The name of a runtime; "" for one that was made otherwise than by its name."""
    try:
        return runtime.name if runtime_of(runtime.name) == runtime else ""
    except InputError:
        return ""
