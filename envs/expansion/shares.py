"""Shares: what the ops of a problem cost for a part of its batch."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from envs.costs.costs import CostModel, costs_by, costs_of, load_cost_model, timing
from graphs.descriptions.another_batch import with_batch
from graphs.foundation import by_name
from graphs.op_graph import Floats, OpGraph, Phase
from graphs.problem import Problem
from graphs.transforms.batch import samples_of, scaled

_KEPT = 64  # problems of shares: a search expands one problem again and again, into few different shares


@lru_cache(_KEPT)
def shared(problem: Problem, share: float) -> Problem:
    """The problem of computing a share of the batch, with the same ops; op_seconds are given, and not to be changed.

    What ops cost grows by the law of the graph (`graphs.transforms.batch`). Times that follow from FLOPs and bytes are
    what the cost model says of the smaller costs; seconds that were made from its own, as under noise, keep their ratio
    to them. Profiled times of ops grow as the roofline's do. Other times that were measured, or given, are in
    proportion to the share, but for updates. The whole batch gives the same numbers, to the bit. Raises InputError as
    `costs_of` does.
    """
    seconds = costs_of(problem).op_seconds
    if share == 1.0:
        return replace(problem, op_seconds=seconds)
    return costing(problem, scaled(problem.graph, share), _but_updates(problem, share))


@lru_cache(_KEPT)
def kinds_of_devices(problem: Problem) -> int:
    """How many columns the seconds of ops need: one if all devices are the same, but for their names, else one each."""
    devices, seconds = problem.cluster.devices, costs_of(problem).op_seconds
    is_one = all(replace(device, name=devices[0].name) == devices[0] for device in devices)
    return 1 if is_one and (seconds == seconds[:, :1]).all() else len(devices)


def of_batch(problem: Problem, samples: int) -> Problem:
    """The problem of a step with that many samples; op_seconds are given, and grow as those of `shared` do.

    Raises InputError as `graphs.descriptions.another_batch.with_batch` and `costs_of` do.
    """
    graph = with_batch(problem.graph, samples)
    if graph is problem.graph:
        return problem
    return costing(problem, graph, _but_updates(problem, samples / samples_of(problem.graph)))


def costing(problem: Problem, part: OpGraph, share: Floats) -> Problem:
    """The problem with the graph of a part of its work; `share`, (ops,), is that of what times are in proportion to."""
    seconds = costs_of(problem).op_seconds
    linear = seconds * share[:, None]
    model = _following(timing(problem))
    if model is None:
        return replace(problem, graph=part, op_seconds=linear)
    graphs = (problem.graph, part)
    whole, of_part = (costs_by(replace(problem, graph=graph, op_seconds=None), model).op_seconds for graph in graphs)
    with np.errstate(divide="ignore", invalid="ignore"):
        changed = np.where(whole > 0, seconds * (of_part / whole), linear)
    return replace(problem, graph=part, op_seconds=np.where(seconds == whole, of_part, changed))


def are_in_proportion(problem: Problem) -> bool:
    """Whether times of ops are known of the whole batch alone, so that a share of it takes that share of them."""
    return _following(timing(problem)) is None


def _but_updates(problem: Problem, share: float) -> Floats:
    """(ops,) the share of the batch, which may be more than one; updates do not depend on it."""
    return np.where(problem.graph.phase >= Phase.UPDATE, 1.0, share)


def _following(spec: str) -> CostModel | None:
    """The cost model with whose seconds those of a problem grow, by the spec of the one that timed it; or None."""
    is_known = by_name.own(spec) or by_name.exists("envs.costs.cost_models", spec.partition(":")[0])
    model = load_cost_model(spec) if is_known else None
    built = getattr(model, "built", model)
    return model if getattr(built, "follows_costs", False) else getattr(built, "grows_with", None)
