"""What a part of the batch costs: by the law, by the cost model, and the same bits for all of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import costs_of, timed
from envs.expansion import draft
from envs.expansion.shards import shard_costs
from envs.expansion.shares import kinds_of_devices, of_batch, shared
from envs.simulation.simulator import LaidOut
from graphs.files.load import load_cluster, load_graph
from graphs.foundation import by_name
from graphs.op_graph import Phase
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.problem import Problem
from graphs.transforms.batch import law_of
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import random_graph, toy_cluster

MODELS = ["roofline", "roofline:efficiency=typical", "roofline:efficiency=measured"]


def captured(batch: int = 32) -> Problem:
    """A step of a small model that knows its law."""
    graph = load_graph(f"transformer:layers=2,batch={batch}", with_law=True)
    return Problem(graph, load_cluster("p100x2"))


@given(cases())
def test_all_of_the_batch_costs_the_same_to_the_bit(case: Case) -> None:
    part = shared(case.problem, 1.0)
    assert part.graph is case.problem.graph
    assert part.op_seconds is not None
    assert part.op_seconds.tobytes() == case.op_seconds.tobytes()


@pytest.mark.parametrize("parts", [2, 3, 16])
@pytest.mark.parametrize("exact", [True, False])
def test_parts_add_up_to_the_whole_and_what_each_of_them_repeats(parts: int, exact: bool) -> None:
    problem = captured()
    if not exact:
        problem = replace(problem, graph=replace(problem.graph, batch_law=BatchLaw(32)))
    part, law = shared(problem, 1 / parts).graph, law_of(problem.graph)
    for key in COSTS:
        whole, repeated = getattr(problem.graph, key), (parts - 1) * getattr(law, key)
        assert parts * getattr(part, key) == pytest.approx(whole + repeated, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_a_part_takes_as_long_as_the_model_captured_with_so_few_samples(model: str) -> None:
    of_part, small = shared(timed(captured(32), model), 1 / 16), timed(captured(2), model)
    assert of_part.op_seconds is not None
    assert small.op_seconds is not None
    assert of_part.op_seconds.tolist() == small.op_seconds.tolist()
    untimed = shared(captured(32), 1 / 16)
    assert np.array_equal(costs_of(untimed).op_seconds, costs_of(captured(2)).op_seconds)


def test_noise_of_the_whole_is_that_of_a_part() -> None:
    problem = timed(captured())
    assert problem.op_seconds is not None
    noisy = shared(replace(problem, op_seconds=problem.op_seconds * 1.25), 1 / 4).op_seconds
    assert noisy == pytest.approx(1.25 * np.asarray(shared(problem, 1 / 4).op_seconds), rel=1e-12)


@given(seed=st.integers(0, 99), parts=st.integers(2, 9))
def test_other_times_are_in_proportion_but_for_updates(seed: int, parts: int) -> None:
    phase = np.where(np.arange(9) < 6, Phase.FORWARD, Phase.UPDATE)
    graph = replace(random_graph(9, seed), phase=phase)
    given_times = Problem(graph, toy_cluster(2), op_seconds=np.random.default_rng(seed).random((9, 2)))
    measured = replace(graph, flops=np.zeros(9), measured_seconds=np.arange(9.0))
    for problem in (given_times, timed(Problem(measured, toy_cluster(2)))):
        found, whole = shared(problem, 1 / parts).op_seconds, costs_of(problem).op_seconds
        assert found is not None
        assert found[:6] == pytest.approx(whole[:6] / parts)
        assert found[6:].tolist() == whole[6:].tolist()


@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_another_batch_takes_as_long_as_the_model_captured_with_it(model: str) -> None:
    for samples in (2, 8, 64):
        found, expected = of_batch(timed(captured(), model), samples), timed(captured(samples), model)
        assert found.graph.fingerprint == expected.graph.fingerprint
        assert np.array_equal(costs_of(found).op_seconds, costs_of(expected).op_seconds)


def test_measured_times_of_another_batch_are_in_proportion_but_for_updates() -> None:
    phase = np.where(np.arange(9) < 6, Phase.FORWARD, Phase.UPDATE)
    graph = replace(random_graph(9, 1), phase=phase, flops=np.zeros(9), measured_seconds=np.arange(9.0))
    problem = timed(Problem(replace(graph, batch_law=BatchLaw(8)), toy_cluster(2)))
    found = costs_of(of_batch(problem, 24)).op_seconds[:, 0]
    assert found.tolist() == [0, 3, 6, 9, 12, 15, 6, 7, 8]
    assert of_batch(problem, 8) is problem


@pytest.mark.parametrize("spec", ["fsdp", "tensor_parallel", "gpipe:micro_batches=4"])
def test_devices_that_are_alike_share_their_seconds_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    problem = captured()
    assert kinds_of_devices(problem) == 1
    assert kinds_of_devices(replace(problem, op_seconds=costs_of(problem).op_seconds * [1.0, 2.0])) == 2
    plan = by_name.build("placers", spec).place(problem).plan
    shared_seconds = LaidOut.of(problem, plan)
    for module in (draft, shard_costs):
        monkeypatch.setattr(module, "kinds_of_devices", lambda problem: len(problem.cluster))
    own = LaidOut.of(problem, plan)
    assert np.array_equal(costs_of(shared_seconds.problem).op_seconds, costs_of(own.problem).op_seconds)
    outcomes = [laid.simulator().run(laid.placement) for laid in (shared_seconds, own)]
    assert outcomes[0].step_seconds == outcomes[1].step_seconds
    assert outcomes[0].peak_bytes.tolist() == outcomes[1].peak_bytes.tolist()
