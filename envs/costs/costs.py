"""Cost models: how long each op takes on each device. `envs/costs/cost_models` holds one in each file.

Unless a cost model is named, what a graph knows decides which one times it: measured times are used where a graph has
them and no FLOPs, and otherwise the roofline model. A graph that has both is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from graphs.formats.collectives import is_sent
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.quantities import readable_seconds
from graphs.foundation.user_code import user_code
from graphs.host import Host
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem

BY_LINKS = "recorded:otherwise=roofline"  # also the name of what times messages by links
MEASURED_SHARES = "roofline:efficiency=measured"
AUTO = "auto"  # the cost model of the verbs and environments, unless one is named
LONGEST = 1e30  # seconds of an op; sums of such times are still finite
FORBIDDEN_FACTOR = 1e3  # an op on a device that the graph forbids takes all work together, times this


@dataclass(frozen=True, eq=False)
class Costs:
    """What the ops of a problem cost."""

    op_seconds: Floats  # (ops, devices) seconds, without the launch hold that follows an op
    hosts: Mapping[str, Host] = field(default_factory=dict)  # by name, where it is known what they take to issue ops

    def busy_seconds(self, problem: Problem) -> Floats:
        """(ops, devices) seconds for which an op holds a device: its duration and, if it takes time, a launch."""
        busy: Floats = self.op_seconds + np.where(self.op_seconds > 0, problem.hold_seconds, 0.0)
        return busy


class CostModel(Protocol):
    """Anything that knows how long ops take.

    `follows_costs = True` says that the seconds follow from the FLOPs and bytes of ops. For a part of a batch they are
    then asked for again, with what the ops cost for the part (`graphs.transforms.batch`); other seconds are in
    proportion to it, or to those of the cost model that is `grows_with`.
    """

    def costs(self, problem: Problem) -> Costs:
        """Seconds of every op on every device of the problem's cluster."""
        ...


def costs_of(problem: Problem) -> Costs:
    """What ops cost: what the problem says or, if it says nothing, what follows from its graph.

    Raises InputError for a graph from which it does not follow, as the cost model does, and for costs that are of
    another problem, negative, or not finite.
    """
    if problem.op_seconds is None:
        return costs_by(problem, load_cost_model(cost_model_of(problem.graph)))
    return _checked(problem, Costs(problem.op_seconds))


def unit_seconds(problem: Problem) -> Floats:
    """(units, devices) seconds for which the ops of a unit hold a device."""
    return problem.units.summed(costs_of(problem).busy_seconds(problem))


def timed(problem: Problem, what: CostModel | str | None = None) -> Problem:
    """The problem with what its ops cost by a cost model, given as an object or as text.

    Unless one is given, it is the one that follows from the graph (`cost_model_of`), as in `costs_of`. `AUTO` is that
    of the verbs and environments: a problem that has times keeps them, and on clusters with GPUs the roofline is at the
    shares of their peaks that were measured. Raises InputError as `costs_of` does, and if all ops take no time.
    """
    if what == AUTO and problem.op_seconds is not None:
        return problem
    spec = cost_model_of(problem.graph) if what is None or what == AUTO else what
    if what == AUTO and spec == "roofline" and not problem.cluster.is_cpu.all():
        spec = MEASURED_SHARES
    costs = costs_by(problem, load_cost_model(spec))
    if not costs.op_seconds.any():
        raise InputError(
            f"all ops of {problem.name} take 0 s by cost model {spec!r}; give them FLOPs and bytes, or measured times: "
            "measured_seconds in the graph, or `cost_model='recorded:file=FILE'`"
        )
    name = spec if isinstance(spec, str) else str(getattr(spec, "name", type(spec).__name__))
    return replace(problem, op_seconds=costs.op_seconds, timed_by=name, hosts=costs.hosts)


def by_kind(op_seconds: Floats) -> Floats:
    """(ops, 1) of (ops, devices) seconds that are one column for all devices, as of many alike; else all of them."""
    return op_seconds[:, :1] if op_seconds.strides[1] == 0 else op_seconds


def timing(problem: Problem) -> str:
    """What times the ops of a problem, for reports: the spec of a cost model, or that the times were given."""
    if problem.timed_by:
        return problem.timed_by
    return cost_model_of(problem.graph) if problem.op_seconds is None else "given times"


def issuing(problem: Problem) -> str:
    """A sentence on what issuing an op takes and who says so, for reports; "" without a host that has a name."""
    host = problem.host
    if host is None or not host.name:
        return ""
    source = "by placelab's constants"
    if host.name in problem.cluster.hosts:
        source = f"as cluster {problem.cluster.name!r} says"
    elif host.name in problem.hosts:
        source = f"as {problem.timed_by} says"
    return issued_by(host, source)


def issued_by(host: Host, source: str) -> str:
    """A sentence on what a host takes for the ops of each phase, and who says so."""
    forward, backward, update = map(readable_seconds, (host.forward, host.backward, host.update))
    taken = f"{forward} to issue a forward op, {backward} a backward op, {update} an update"
    return f"Host: {host.name} takes {taken}, {source}."


def cost_model_of(graph: OpGraph) -> str:
    """The name of the cost model that follows from what a graph knows: "recorded" or "roofline".

    Messages and collectives of a trace that have bytes and no time take as long as these on the cluster's links. Raises
    InputError, with the remedy, for a graph with measured times of some ops and FLOPs or bytes of others, or with both
    of the same ops.
    """
    measured = ~np.isnan([graph.measured_seconds, *graph.measured_on.values()]).all(axis=0)
    sent = is_sent(graph) & ~measured
    counted = (graph.flops > 0) | ((graph.bytes_accessed > 0) & ~measured)
    if not measured.any():
        return "roofline"
    if not (counted & ~sent).any():
        return BY_LINKS if sent.any() else "recorded"
    raise InputError(
        f"graph {graph.name!r} has measured times of {measured.sum()} of its {len(graph)} ops, and FLOPs or bytes of "
        f"{counted.sum()}; say which count: `cost_model='recorded'` for the measured times, "
        "recorded:otherwise=roofline to time the other ops by FLOPs and bytes, or roofline for those alone"
    )


def _checked(problem: Problem, costs: Costs) -> Costs:
    """The costs. Raises InputError for those of another problem, and for seconds that are negative or not finite."""
    expected = (len(problem.graph), len(problem.cluster))
    if costs.op_seconds.shape != expected:
        raise InputError(f"{problem.name}: op_seconds has shape {costs.op_seconds.shape}, expected {expected}")
    seconds = by_kind(costs.op_seconds)
    is_fine = (seconds >= 0) & (seconds <= LONGEST)
    if not is_fine.all():
        op, device = np.argwhere(~is_fine)[0]
        raise InputError(
            f"{problem.name}: op {problem.graph.names[op]!r} takes {costs.op_seconds[op, device]} seconds on "
            f"{problem.cluster.devices[device].name!r}; expected a finite number >= 0, at most {LONGEST:g}"
        )
    return costs


def costs_by(problem: Problem, cost_model: CostModel) -> Costs:
    """The costs by a model, but far more than all work together on devices that the graph forbids to an op.

    Searches and list schedulers, which compare devices by their seconds, then avoid those.
    """
    costs = _checked(problem, cost_model.costs(problem))
    if problem.allowed is None:
        return costs
    forbidden = ~problem.allowed[problem.graph.units]
    seconds = np.where(forbidden, FORBIDDEN_FACTOR * (costs.op_seconds.sum() + 1.0), costs.op_seconds)
    return _checked(problem, replace(costs, op_seconds=seconds))


def load_cost_model(what: CostModel | str) -> CostModel:
    """The cost model itself, or the one that a spec such as "roofline:efficiency=typical" names.

    Raises InputError for an unknown name or knob, or for a file that cannot be read.
    """
    if not isinstance(what, str):
        return what
    if what == AUTO:
        raise InputError("which cost model 'auto' is follows from a graph; give one by name, or use `timed`")
    cost_model: CostModel = by_name.build("envs.costs.cost_models", what)
    return cost_model


@dataclass(frozen=True)
class OwnCostModel(by_name.OwnExtension[CostModel]):
    """A cost model from a user's file."""

    folder = "envs.costs.cost_models"

    def costs(self, problem: Problem) -> Costs:
        """What the user's model says.

        Raises UserCodeError for what its code raises, InputError for what are no costs.
        """
        with user_code(self.file):
            found = self.built.costs(problem)
        if not isinstance(found, Costs):
            raise InputError(f"{self.name!r}: expected envs.costs.costs.Costs, got {type(found).__name__}")
        return found


def checked(spec: str, built: Any) -> CostModel:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no cost model."""
    model: CostModel = OwnCostModel.checked(spec, built, "a cost model", "costs")
    return model
