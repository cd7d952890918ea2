"""Cost models: how long each op takes on each device. An extension folder: one file, one cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from graphs import by_name
from graphs.op_graph import Floats
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Costs:
    """What the ops of a problem cost."""

    op_seconds: Floats  # (ops, devices) seconds, without the launch hold that follows an op


class CostModel(Protocol):
    """Anything that knows how long ops take."""

    def costs(self, problem: Problem) -> Costs:
        """Seconds of every op on every device of the problem's cluster."""
        ...


def costs_of(problem: Problem, cost_model: CostModel | None = None) -> Costs:
    """What ops cost by a cost model; without one, as the problem says, and if it does not, by the roofline at peak."""
    if cost_model is None and problem.op_seconds is not None:
        return Costs(problem.op_seconds)
    from envs.cost_models.roofline import Roofline  # which imports this package

    return (cost_model or Roofline()).costs(problem)


def load_cost_model(what: CostModel | str) -> CostModel:
    """The cost model that is meant by one, or by a spec such as "roofline:efficiency=typical".

    Raises InputError for an unknown name or knob, or for a file that cannot be read.
    """
    if not isinstance(what, str):
        return what
    cost_model: CostModel = by_name.build("envs.cost_models", what)
    return cost_model
