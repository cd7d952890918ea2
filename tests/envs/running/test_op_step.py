"""What processes make together, op by op, is what the model makes, and what they send is what is simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.running.processes import Workers
from envs.simulation.simulator import LaidOut
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.transforms.freezing import freeze_layers
from tests.envs.running.placed_runs import PlacedRun, Trained, assert_equal, laid_out, run_placed
from tests.envs.running.trained_models import EXAMPLES, program_of


@pytest.fixture(scope="module")
def workers(processes: Callable[[int], Workers]) -> Workers:
    return processes(3)


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_process_makes_what_the_model_makes(name: str) -> None:
    found = run_placed(name, laid_out(name, 1, 0), 0)
    assert_equal(name, [found])
    assert not found.messages
    assert {span.op for span in found.spans} == set(range(len(program_of(name).step)))


def test_frozen_layers_are_not_trained_and_the_others_as_before() -> None:
    program = program_of("gpt")
    frozen = freeze_layers(program.step, 1)
    frozen = replace(frozen, weight_names=())  # as of a graph that comes from a file
    problem = Problem(frozen, load_cluster("p100x1"))
    found = run_placed("gpt", LaidOut.of(problem, Plan.of([0] * len(frozen))), 0)
    trained = run_placed("gpt", laid_out("gpt", 1, 0), 0)
    gone = trained.weights.keys() - found.weights.keys()
    assert gone == {name for name in trained.weights if ".words" in name or ".places" in name or "blocks.0." in name}
    assert found.weights
    for name, value in found.gradients[0].items():
        np.testing.assert_array_equal(value, trained.gradients[0][name])


PLACED = [
    pytest.param(name, devices, seed + devices, marks=[pytest.mark.slow] if devices == 2 and seed > 2 else [])
    for devices in (2, 3)
    for seed, name in enumerate(EXAMPLES)
]


@pytest.mark.parametrize(("name", "devices", "seed"), PLACED)
def test_processes_make_together_what_the_model_makes(name: str, devices: int, seed: int, workers: Workers) -> None:
    parts = workers.run(PlacedRun(name, devices, seed), limit=120.0)
    assert_equal(name, parts)
    laid = laid_out(name, devices, seed)
    placement = laid.placement[laid.problem.graph.units]
    for rank, part in enumerate(parts):
        assert sorted(span.op for span in part.spans) == np.flatnonzero(placement == rank).tolist()
        times = [time for span in part.spans for time in (span.start, span.finish)]
        assert times == sorted(times)
    check_messages(laid, parts)


def check_messages(laid: LaidOut, parts: list[Trained]) -> None:
    """What was sent was received: transfers of the simulation, after their op and before the first that reads them."""
    moved = laid.simulator().timeline(laid.placement).transfers
    simulated = Counter(zip(moved.output.tolist(), moved.source.tolist(), moved.destination.tolist(), strict=True))
    sent, received = ({(each.output, each.source, each.destination): each for part in parts for each in part.messages
                       if np.isnan(each.finish) == is_sent} for is_sent in (True, False))  # fmt: skip
    assert sent.keys() == received.keys()
    assert len(sent) + len(received) == sum(len(part.messages) for part in parts)
    assert Counter(sent.keys()) <= simulated
    spans = {span.op: span for part in parts for span in part.spans}
    graph, placement = laid.problem.graph, laid.placement[laid.problem.graph.units]
    for key, each in sent.items():
        assert each.size == received[key].size
        assert spans[each.output].finish <= each.start <= received[key].finish
        readers = [v for u, v in graph.edges.tolist() if u == each.output and placement[v] == each.destination]
        assert any(received[key].finish <= spans[reader].start for reader in readers)
