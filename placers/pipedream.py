"""PipeDream's partition (Narayanan et al. 2019): contiguous stages with the least bottleneck.

Without replicas, it is an op placement. Units are taken in topological order. A stage takes the time of its units on
its device, or twice that of the bytes that enter it if they take longer to send; it must hold no more than its device
can, if there is such a partition. Stages are on the devices in their order; some devices may stay empty.

Where the objective is of samples that follow one another, as max-load is, it is the baseline of that name in "Efficient
Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020): the nodes of each biconnected
component become one until the graph is nearly a path, and the path is split with the least largest load.

With `form`, stages have replicas (`placers.pipelines.published.pipedream_planner`). Mini-batches follow one another
without a flush, as PipeDream trains. Such a plan computes something else than others: it updates the weights after each
mini-batch, with gradients of earlier weights. Its step is the same samples as that of any plan, begins and ends with an
empty pipeline, and can be compared by time alone; a note says so. With `flush`, the same stages train as others do.
"""

from dataclasses import dataclass, replace
from typing import Literal

import networkx as nx
import numpy as np

from envs.costs.costs import Costs, costs_of, unit_seconds
from envs.objectives import is_pipelined
from envs.plans.placer_result import PlacerResult
from envs.simulation.held_memory import HeldMemory
from graphs.algorithms.pairs import distinct_pairs
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_groups.units import Units
from graphs.problem import Problem
from placers.contract.whole_plans import why_placements_only
from placers.pipelines.cutting.chain import least_bottleneck
from placers.pipelines.cutting.contracted_graph import ContractedGraph
from placers.pipelines.cutting.split import best_within_memory
from placers.pipelines.published.pipedream_planner import PipeDreamPlanner
from placers.pipelines.published.replicated import Form

STACK = 4  # more readers than a block has branches: an op with more feeds every layer of a stack


@dataclass(frozen=True)
class PipeDream(Named):
    """Contiguous stages with the least bottleneck; with a form also replicas of them, without a flush or with one."""

    form: Literal["placement", "printed", "released"] = "placement"
    """An op placement; or stages with replicas by the paper's recurrence, or by that of the released program."""
    mini_batches: int = 0
    """Of a step, each of which updates the weights; 0 for about four for each device, as suits the replicas, or with a
    flush for eight, or fewer where those do not divide the samples."""
    flush: bool = False
    """Whether weights are updated once per step, and replicas split mini-batches: a synchronous plan, as others are."""
    straight: bool = False
    """Whether no stage has replicas."""
    transfers: bool = True
    """Whether transfers between stages count."""
    within_memory: bool = True
    """Whether a stage must fit its device with what it keeps for mini-batches in flight, if any pipeline does."""
    layers: int = 64
    """The most layers to cut, several units together; a graph of up to 400 units branches in the released form."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise InputError(f"pipedream: layers is {self.layers}; expected at least 1")
        if self.form == "placement" and self.name != "pipedream":
            raise InputError(
                f"{self.name!r} is an op placement, which has no other knobs; add form=printed or form=released"
            )

    @property
    def divides_batch(self) -> bool:
        """Whether there are mini-batches."""
        return self.form != "placement"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. An op placement with a note where only those make sense.

        Raises InputError for samples that cannot be divided into the mini-batches.
        """
        if self.form == "placement":
            return self._placement(problem, seed)
        if reason := why_placements_only(problem):
            note = f"pipedream: stages without mini-batches or replicas, since {reason}."
            return replace(self._placement(problem, seed), notes=(note,))
        by = Form(self.form == "printed", self.transfers, self.straight, versions=not self.flush)
        planner = PipeDreamPlanner("pipedream", by, self.mini_batches, self.flush, self.within_memory, self.layers)
        plan, said = planner.planned(problem)
        return PlacerResult(plan, self.name, seed, notes=(said,))

    def _placement(self, problem: Problem, seed: int) -> PlacerResult:
        if is_pipelined(problem):
            costs = costs_of(problem)
            path = ContractedGraph.of(problem, costs, _without_branches(problem, costs))
            placement = best_within_memory(path, placer="pipedream")[path.node_of_unit]
            return PlacerResult.of_units(problem, placement, self.name, seed)
        units = problem.units
        held = HeldMemory.of(problem)
        seconds, memory = unit_seconds(problem)[units.order], held.per_unit[units.order]
        entering = _bytes_across(units)
        apart = ~np.eye(len(problem.cluster), dtype=np.bool_)
        bandwidth = float(problem.cluster.bandwidth[apart].mean()) if apart.any() else np.inf
        stages = least_bottleneck(seconds, 2 * entering / bandwidth, memory, held.limits)
        if stages is None:
            stages = least_bottleneck(seconds, 2 * entering / bandwidth, memory, np.full(len(held.limits), np.inf))
        assert stages is not None  # without limits there is always a partition
        return PlacerResult.of_units(problem, stages[np.argsort(units.order)], self.name, seed)


build = PipeDream


def _bytes_across(units: Units) -> Floats:
    """(units,) bytes that pass between the units before each in the order and the others."""
    first, last = np.sort(np.argsort(units.order)[units.links], axis=1).T  # of each link, the positions of its ends
    change = np.zeros(len(units) + 1)
    np.add.at(change, first + 1, units.link_bytes)
    np.add.at(change, last + 1, -units.link_bytes)
    across: Floats = np.cumsum(change)[: len(units)]
    return across


def _without_branches(problem: Problem, costs: Costs) -> Ints:
    """(units,) a label for each: units with edges in one biconnected component share one, so it is nearly a path.

    The forward ops of a unit are one node here and the backward ops another; joining either joins the unit.

    The released program leaves out the edges from inputs, masks and the like, which feed many layers at no cost. Here
    these are forward units that take no time and either read and hold nothing, or are read by more than four. It means
    to leave out their gradients too, but its numbering misses them; so all backward edges stay.
    """
    graph = problem.graph
    half = graph.units * 2 + (graph.phase != Phase.FORWARD)  # forward and backward ops of a unit
    edges, _ = distinct_pairs(half[graph.edges])
    edges = edges[edges[:, 0] != edges[:, 1]]
    edges = edges[~_feeds_many(problem, costs, half, edges)[edges[:, 0]]]
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(graph.num_units))
    sources: dict[tuple[int, int], list[int]] = {}
    for u, v in edges.tolist():
        sources.setdefault((min(u, v), max(u, v)), []).append(u)
    whole: nx.Graph[int] = nx.Graph()
    whole.add_edges_from(sources)
    for component in nx.biconnected_component_edges(whole):
        nx.add_path(joined, [source // 2 for u, v in component for source in sources[min(u, v), max(u, v)]])
    label = np.empty(graph.num_units, np.int64)
    for number, together in enumerate(nx.connected_components(joined)):
        label[list(together)] = number
    return label


def _feeds_many(problem: Problem, costs: Costs, half: Ints, edges: Ints) -> Bools:
    """(halves,) whether each is an input, a mask or the like."""
    count = 2 * problem.graph.num_units
    work = np.bincount(half, weights=costs.op_seconds.max(axis=1), minlength=count)
    held = np.bincount(half, weights=problem.graph.weight_bytes, minlength=count)
    reads, is_read = (np.bincount(edges[:, end], minlength=count) for end in (1, 0))
    nothing = (reads == 0) & (held == 0)
    is_forward = np.arange(count) % 2 == 0
    feeds: Bools = is_forward & (work == 0) & (nothing | (is_read > STACK))
    return feeds
