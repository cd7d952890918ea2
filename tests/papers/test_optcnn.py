"""OptCNN's eliminations on profiled networks: what they leave, and that bucket elimination finds the same minimum."""

from pathlib import Path

import pytest

from placers.splits.bucket_elimination import least
from placers.splits.elimination_order import min_fill_order
from placers.splits.node_elimination import MOST_ASSIGNMENTS, least_by_node_elimination, reduced
from tests.papers.optcnn_costs import CONFIGURATIONS, layered, missing, profiles

# nodes that node and edge eliminations leave, and the width by which bucket elimination goes
LEFT = {
    "bert-48-pbs-2": (51, 2), "vgg-19-pbs-32": (2, 1), "gnmt": (31, 4), "inception_v3": (4, 2), "resnet50": (2, 2),
    "vgg16": (2, 2), "layer_bert24_inference": (31, 2), "layer_bert24_training": (62, 2),
    "layer_gnmt_inference": (59, 4), "layer_gnmt_training": (118, 4), "layer_inceptionv3_inference": (2, 2),
    "layer_inceptionv3_training": (4, 2), "operator_bert_l-3_inference": (177, 3),
    "operator_bert_l-3_training": (394, 7), "operator_resnet50_inference": (514, 2),
}  # fmt: skip


def test_every_profile_is_solved_exactly_with_eight_configurations_each() -> None:
    assert len(CONFIGURATIONS) == 8
    solved: list[Path] = []
    for path in profiles():
        costs = layered(path).costs()
        order = min_fill_order(costs.choices, costs.pairs)
        left = reduced(costs)
        assert (len(left.nodes), order.width) == LEFT[path.stem], path.name
        found = least(costs, order)
        assert costs.cost(found.chosen) == pytest.approx(found.cost, rel=1e-9)
        if len(CONFIGURATIONS) ** len(left.nodes) <= MOST_ASSIGNMENTS:
            assert least_by_node_elimination(costs).cost == pytest.approx(found.cost, rel=1e-9)
        chosen = left.undone(least(left.costs).chosen)
        assert costs.cost(chosen) == pytest.approx(found.cost, rel=1e-9)
        one_for_all = [costs.cost([choice] * len(costs)) for choice in range(len(CONFIGURATIONS))]
        assert found.cost <= min(one_for_all) * (1 + 1e-9)
        solved.append(path)
    assert len(solved) >= 15


def test_what_devices_lack_of_a_tensor_is_that_of_hand_counts() -> None:
    lacking = missing() * 8
    name = {configuration: place for place, configuration in enumerate(CONFIGURATIONS)}
    assert lacking[name[8, 1], name[8, 1]] == 0.0
    assert lacking[name[1, 8], name[1, 8]] == 7.0  # each of eight devices needs the whole and has an eighth
    assert lacking[name[1, 1], name[8, 1]] == pytest.approx(7 / 8)  # only the first device has its part
    assert lacking[name[2, 4], name[2, 4]] == pytest.approx(8 * (1 / 2 - 1 / 8))
