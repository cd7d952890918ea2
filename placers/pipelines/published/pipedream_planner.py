"""PipeDream's planner: stages with replicas as a plan, without a flush or with one (Narayanan et al. 2019).

Without a flush, a mini-batch is a micro-batch of the plan that updates the weights by itself. Replicas of a stage take
mini-batches in turns. Passes are in the order 1F1B, with as many mini-batches in flight as keep all devices busy, and
every one is computed with one version of the weights, forward and backward (weight stashing).

With a flush, weights are updated once per step, and replicas split every micro-batch. So were PipeDream's plans
compared with DAPPLE's (Fan et al. 2021).

The published costs know no weights that several stages use, such as a tied embedding, which the engine sends to all of
them after each update.

On servers the hierarchy has two levels: a pipeline on the devices of a server, of which there may be several copies.

    stage 0      devices 0 1 | 4 5      2 replicas in each of 2 servers: mini-batches go to 0, 4, 1, 5, 0, ...
    stage 1              2 3 | 6 7      what is computed in a server goes on there: to 2, 6, 3, 7, ...
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import ONE_F_ONE_B
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Update
from graphs.op_graph import OpGraph
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, most_that_divide
from placers.pipelines.published.cuts import MOST_CUTS, Cuts
from placers.pipelines.published.on_devices import micro_batches_of
from placers.pipelines.published.replicated import Form, LinkLevel, Replicated, partition
from placers.pipelines.published.servers import Servers
from placers.pipelines.stages_in_words import stages_in_words

PER_DEVICE = 4  # mini-batches of a step, unless they are given; ours, as many as GPipe has micro-batches for each stage

Groups = tuple[tuple[int, ...], ...]  # (servers,) the devices of each


@dataclass(frozen=True)
class PipeDreamPlanner:
    """What decides a plan, in addition to the problem."""

    placer: str  # whose name errors carry
    form: Form  # but for the memory of devices, and the mini-batches that replicas divide
    mini_batches: int  # of a step; 0: with a flush eight, else about `PER_DEVICE` for each device; as samples allow it
    flush: bool
    within_memory: bool  # whether stages must fit
    layers: int  # the most of a chain

    def planned(self, problem: Problem) -> tuple[Plan, str]:
        """The plan, and a sentence on it. Raises InputError for samples that mini-batches do not divide."""
        graph, devices = problem.graph, accelerators(problem.cluster)
        layers, servers = self._layers(problem, devices), Servers.of(problem.cluster, devices)
        count = self._count(problem, layers, servers)
        shared = graph.samples // count if self.flush else count  # what replicas divide
        cuts = self._cuts(problem, layers, count)
        found, groups, fits = self._found(problem, cuts, servers, shared)
        ends = [stage.end for stage in found.stages]
        of_layer = cuts.before[ends].argmax(axis=0)  # the first stage before whose end it is
        used, of_layer = np.unique(of_layer, return_inverse=True)
        several = on_groups([stage.replicas for stage in found.stages], groups, in_turns=not self.flush)
        replicas = [several[number] for number in used]
        stage = of_layer[layers.of_unit][graph.units].tolist()
        schedule = Schedule(count, tuple(stage), ONE_F_ONE_B)
        if not self.flush:
            update: Update = "micro_batch" if graph.is_training else "step"
            schedule = replace(schedule, sharing="turns", update=update)
        note = self._said(np.bincount(of_layer).tolist(), list(map(len, replicas)), found, count, graph.is_training)
        return Plan(tuple(replicas[number] for number in stage), schedule=schedule), note + ("" if fits else LACKING)

    def _count(self, problem: Problem, layers: Layers, servers: Servers) -> int:
        """How many mini-batches a step has."""
        graph = problem.graph
        if self.flush or self.mini_batches:
            return micro_batches_of(problem, self.placer, self.mini_batches)
        # those of the step decide what a layer costs, and the replicas how many they are
        few = most_that_divide(graph, PER_DEVICE * len(accelerators(problem.cluster)))
        found, _, _ = self._found(problem, self._cuts(problem, layers, few), servers, graph.samples)
        return _multiple(graph, lcm(*(stage.count for stage in found.stages)), few)

    def _layers(self, problem: Problem, devices: tuple[int, ...]) -> Layers:
        """Single units where the form cuts graphs that branch, and there are not too many."""
        few = not self.form.printed and problem.graph.num_units <= MOST_CUTS
        return Layers.of(problem, MOST_CUTS if few else self.layers, devices, unit_layers(problem.graph))

    def _cuts(self, problem: Problem, layers: Layers, mini_batches: int) -> Cuts:
        branches = None if self.form.printed else Cuts.of_branches(problem, layers, mini_batches)
        return branches or Cuts.of_chain(layers, mini_batches)

    def _found(self, problem: Problem, cuts: Cuts, servers: Servers, shared: int) -> tuple[Replicated, Groups, bool]:
        """The pipeline, of what devices, and whether it fits: on as many devices as can be."""
        limit = float(problem.cluster.memory_bytes[list(accelerators(problem.cluster))].min())
        for memory in (limit, np.inf) if self.within_memory else (np.inf,):
            form = replace(self.form, memory_bytes=memory, shared=shared)
            for levels, groups in _hierarchies(servers):
                found = partition(cuts, levels, form)
                if found.stages and not any(shared % stage.count for stage in found.stages):
                    return found, groups, memory == limit or not self.within_memory
        raise AssertionError("without a limit, a single device has a pipeline")

    def _said(self, layers: list[int], replicas: list[int], found: Replicated, count: int, is_training: bool) -> str:
        """A sentence on the pipeline."""
        said = (
            f"{stages_in_words(layers, replicas)}, whose replicas "
            f"{'split mini-batches' if self.flush else 'take turns'}: by "
            f"the {'paper' if self.form.printed else 'released program'} {found.seconds:.6g} s for each of {count} "
            "mini-batches once all stages have one, "
        )
        if self.flush:
            return f"{said}{(count + len(layers) - 1) * found.seconds:.6g} s for the step with filling and emptying"
        said += f"{count * found.seconds:.6g} s for the step in addition to filling and emptying"
        if not is_training:
            return said
        older = max(-(-sum(replicas[stage:]) // own) for stage, own in enumerate(replicas)) - 1
        return (
            f"{said}; weights are updated after each turn, without a flush, by gradients of weights that are "
            f"{older} update{'s' * (older != 1)} older at most: not what a step with a flush computes"
        )


LACKING = "; no such pipeline fits the memory"


def _hierarchies(servers: Servers) -> Iterator[tuple[list[LinkLevel], Groups]]:
    """Levels of links and the devices that they join: equal servers of several devices, or fewer and fewer in a row."""
    links, sizes = servers.links, servers.sizes
    if len(sizes) > 1 and sizes[0] > 1 and (sizes == sizes[0]).all():
        levels = [LinkLevel(int(sizes[0]), links.within_bandwidth), LinkLevel(len(sizes), links.between_bandwidth)]
        yield levels, servers.devices
    row = tuple(device for devices in servers.devices for device in devices)
    for count in range(len(row), 0, -1):
        bandwidth = links.between_bandwidth if count > sizes[0] else links.within_bandwidth
        yield [LinkLevel(count, bandwidth)], (row[:count],)


def on_groups(stages: Sequence[tuple[int, ...]], groups: Groups, *, in_turns: bool = True) -> Groups:
    """(stages,) the devices of each, given replicas within a server and, with several servers, how many of these.

    Of replicas that take turns, neighbours are on different servers, so that what takes a turn on one goes on there; of
    those that split a micro-batch, on the same one, for the same reason.
    """
    found, first, taken = list[tuple[int, ...]](), 0, 0
    for within, *outside in stages:
        several = outside[0] if outside else 1
        rows = [server[taken : taken + within] for server in groups[first : first + several]]
        ordered = zip(*rows, strict=True) if in_turns else rows
        found.append(tuple(device for row in ordered for device in row))
        taken += within
        if taken == len(groups[0]):
            first, taken = first + several, 0
    return tuple(found)


def _multiple(graph: OpGraph, shared: int, least: int) -> int:
    """A number of mini-batches that replicas share: the smallest, at least `least` if samples can be divided so."""
    if not graph.samples:
        return -(-least // shared) * shared
    divide = [count for count in range(shared, graph.samples + 1, shared) if graph.samples % count == 0]
    return next((count for count in divide if count >= least), divide[-1])
