"""The search for the label of a problem: the best pipeline that is known, named as a construction names devices.

A formula proposes pipelines, and a local search at the grain of stages improves them (`placers.pipelines`), within what
a construction can make: its numbers of micro-batches, its orders of passes, replicas that split each micro-batch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline
from envs.pipelines.shapes import shapes_of
from graphs.foundation.errors import InputError
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, PASS_ORDERS, SHARING, ProblemChain
from placers.pipelines.budget import Spent, spending
from placers.pipelines.local_search import PipelineSearch
from placers.pipelines.moves import PipelineMoves
from placers.pipelines.pipeline_evaluator import PipelineEvaluator, PipelineOutcome
from placers.pipelines.proposals import Proposer

PROPOSED = 24  # pipelines of the formula; ours
ANY_SHAPE = (8, 2, 4)  # micro-batches, ranks and stages, of which each order takes some


def best_known(
    view: ProblemChain, simulations: int, seed: int, starts: Iterable[LayerPipeline] = ()
) -> tuple[LayerPipeline | None, float]:
    """The best pipeline that a construction can make, and its step in seconds; None if the search found none that fits.

    The search begins with `starts`, and with what the formula proposes. It spends at most `simulations`.
    """
    proposer = Proposer(view.formula)
    proposed = (one.pipeline for one in proposer.best(PROPOSED))
    possible = list(dict.fromkeys(one for each in [*starts, *proposed] for one in _possible(view, each)))
    with spending(simulations, "labelling") as spent:
        evaluator = _Possible(view, proposer.grain, spent)
        search = PipelineSearch(
            evaluator,
            _moves(view, proposer),
            view.formula,
            np.random.default_rng(seed),
        )
        search.run(possible, simulations)
        best = next(iter(evaluator.ranked()), None)
    if best is None or (merit := evaluator.merit(best)).lacking:
        return None, np.inf
    return named_alike(view, best), merit.value


class _Possible(PipelineEvaluator):
    """Knows nothing of pipelines that a construction cannot make, and spends no simulation on them."""

    def __init__(self, view: ProblemChain, grain: LayerGrain, spent: Spent) -> None:
        super().__init__(grain, spent)
        self._view = view

    def _simulated(self, pipeline: LayerPipeline) -> PipelineOutcome | None:
        return super()._simulated(pipeline) if is_possible(self._view, pipeline) else None


def is_possible(view: ProblemChain, pipeline: LayerPipeline) -> bool:
    """Whether a construction can make it."""
    if pipeline.sharing != SHARING or pipeline.rule or pipeline.is_divided:
        return False
    try:
        view.construction().towards(pipeline)
    except InputError:
        return False
    return True


def named_alike(view: ProblemChain, pipeline: LayerPipeline) -> LayerPipeline:
    """The same pipeline, on the first free ones of devices that are alike: those that a policy is asked about."""
    free = list(range(len(view.alike)))
    named: dict[int, int] = {}
    for stage in pipeline.stages:
        for device in stage.devices:
            if device not in named:
                named[device] = next(each for each in free if view.alike[each] == view.alike[device])
                free.remove(named[device])
    stages = (replace(each, devices=tuple(sorted(named[d] for d in each.devices))) for each in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))


def _possible(view: ProblemChain, pipeline: LayerPipeline) -> Iterator[LayerPipeline]:
    """What is nearest to a pipeline among those that a construction can make, if there is any."""
    nearest = min(MICRO_BATCHES, key=lambda count: abs(np.log(count / pipeline.micro_batches)))
    order = pipeline.order if pipeline.order in PASS_ORDERS else ONE_F_ONE_B
    one = replace(pipeline, micro_batches=nearest, order=order, sharing=SHARING, rule=None)
    if is_possible(view, one):
        yield one


def _moves(view: ProblemChain, proposer: Proposer) -> PipelineMoves:
    graph, devices = view.problem.graph, proposer.devices
    moves = PipelineMoves.of(devices.used, devices.kind, proposer.server, graph.samples, 0)
    apart = view.pipelines.layers.weight_gradients_apart(view.problem)
    orders = tuple(
        order for order in PASS_ORDERS if shapes_of(order, *ANY_SHAPE, weight_gradients_apart=apart)
    ) if graph.is_training else ()  # fmt: skip
    numbers = tuple(count for count in moves.micro_batches if count in MICRO_BATCHES)
    return replace(moves, micro_batches=numbers, orders=orders, recompute=graph.is_training)
