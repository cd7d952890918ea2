"""The numbers of ops decide between equals, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from graphs.problem import Problem
from graphs.runtime import IDEAL
from tests.envs.expansion.renumbering import MODELS, changes, costs_alone, without_ties
from tests.oracle.toys import toy_cluster, toy_graph


@pytest.mark.parametrize("model", MODELS[:2])
def test_without_equals_no_plan_of_any_kind_depends_on_the_numbers(model: str) -> None:
    rng = np.random.default_rng(0)
    found = list(changes(without_ties(costs_alone(model), rng), "longest_path", rng))
    assert len(found) >= 24
    for name, step, peak in found:
        assert step < 1e-12, name
        assert peak < 1e-12, name


def test_of_equals_the_lowest_number_is_first() -> None:
    """Two ops of a device, one of which another device waits for."""
    for waited_for, step in ((0, 4.0), (1, 5.0)):
        graph = toy_graph([1, 1, 3], [(waited_for, 2)], output_bytes=[0, 0, 0])
        problem = Problem(graph, toy_cluster(2), runtime=IDEAL.with_knobs(order="fifo"))
        assert Simulator(problem).timeline([0, 0, 1]).step_seconds == step
