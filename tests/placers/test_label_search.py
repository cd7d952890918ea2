"""The search for labels begins with pipelines that a construction can make."""

import pytest

from envs.pipelines.pipeline import LayerPipeline, LayerStage
from graphs.problem import Problem
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, ProblemChain
from placers.learned.whole_plans.label_search import _possible
from tests.contracts.test_placers import training_graph, unequal_cluster


@pytest.mark.parametrize(
    ("order", "nearest"),
    [("gpipe", "gpipe"), ("early_backward_b", "early_backward_b"), ("dualpipe_v", "early_backward_a")],
)
def test_orders_that_it_knows_stay_and_others_become_one_forward_one_backward(order: str, nearest: str) -> None:
    view = ProblemChain.of(Problem(training_graph(), unequal_cluster()))
    layers = len(view.work) - 1
    one = LayerPipeline((LayerStage(0, 1, (1,)), LayerStage(1, layers, (2,))), micro_batches=4, order=order)
    assert 4 in MICRO_BATCHES
    assert [(each.order.name, each.micro_batches) for each in _possible(view, one)] == [(nearest, 4)]
