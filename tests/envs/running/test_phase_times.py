"""A step as three ops for each device takes what the plan's step takes, and holds as much."""

import numpy as np
import pytest

from envs.running.phase_times import by_phase
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster
from graphs.op_graph import Phase
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.data_parallel import build as data_parallel
from placers.tensor_parallel import TensorParallel
from placers.tofu import build as tofu
from tests.envs.placed_models.models import captured


@pytest.mark.parametrize("placer", [TensorParallel(), tofu(), data_parallel()], ids=lambda each: each.name)
@pytest.mark.parametrize("name", ["mlp", "gpt", "conv"])
def test_phases_end_when_they_do_in_the_simulation_of_the_plan(name: str, placer: Placer) -> None:
    problem = Problem(captured(name), load_cluster("v100x4"))
    plan = placer.place(problem).plan
    whole, laid = simulate(problem, plan), by_phase(problem, plan)
    parts = laid.simulator().timeline(laid.placement)
    assert parts.step_seconds == pytest.approx(whole.step_seconds, rel=1e-5)
    np.testing.assert_allclose(parts.peak_bytes, whole.peak_bytes)
    np.testing.assert_allclose(parts.held_bytes, whole.held_bytes)
    phase = np.minimum(whole.problem.graph.phase, Phase.UPDATE)
    for op, device in enumerate(laid.placement.tolist()):
        is_there = (whole.placement == device) & (phase <= op % 3)
        assert parts.finish[op] == pytest.approx(whole.finish[is_there].max(), rel=1e-5)
