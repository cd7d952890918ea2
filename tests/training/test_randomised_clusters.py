"""Randomised problems: the same devices and channels, other speeds and memory within the spread; other op times."""

import numpy as np
import pytest

from envs.costs.costs import costs_of
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from training.problems.randomised import FACTOR, LEAST_MEMORY, ROOMY, TIGHT, randomised, with_other_times
from training.recipe import ProblemSet
from training.runs.problem_sets import load_problems


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_factors_stay_within_the_spread_and_are_the_same_for_all_devices(spread: float) -> None:
    cluster = load_cluster("cpu_gpu")
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = randomised(cluster, spread, rng)
        speeds = {b.flops_per_second / a.flops_per_second for a, b in zip(cluster.devices, other.devices, strict=True)}
        speeds |= {b.bytes_per_second / a.bytes_per_second for a, b in zip(cluster.devices, other.devices, strict=True)}
        memory = other.memory_bytes / cluster.memory_bytes
        links = (other.bandwidth / cluster.bandwidth)[~np.eye(len(cluster), dtype=np.bool_)]
        assert max(speeds) - min(speeds) < 1e-9
        assert np.ptp(memory) < 1e-9
        assert np.ptp(links) < 1e-9
        for factor in (max(speeds), memory[0], links[0]):
            assert 1 / spread <= factor * (1 + 1e-9)
            assert factor <= spread * (1 + 1e-9)
        assert memory[0] >= LEAST_MEMORY
        assert other.channel.tolist() == cluster.channel.tolist()


def test_training_problems_have_randomised_copies_and_test_problems_none(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = "transformer:layers=1,width=64,heads=2"
    monkeypatch.setattr("training.runs.problem_sets.split", lambda families, which: [tiny] * 2)
    chosen = ProblemSet(clusters=("p100:devices=2", "p100:devices=3"), test_clusters=("p100:devices=2",), randomised=2)
    train, again, other = (load_problems(chosen, "train", seed) for seed in (0, 0, 1))
    assert [len(problem.cluster) for problem in train] == [2, 2, 2, 3, 3, 3] * 2
    prints = [problem.cluster.fingerprint for problem in train]
    assert len(set(prints)) == 2 + 8
    assert prints == [problem.cluster.fingerprint for problem in again]
    assert prints != [problem.cluster.fingerprint for problem in other]
    assert len(load_problems(chosen, "test")) == 2


def test_unequal_copies_have_devices_that_differ_and_some_variants_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = load_cluster("p100:devices=4")
    copy = randomised(cluster, 3.0, np.random.default_rng(0), unequal=True)
    assert len({device.flops_per_second for device in copy.devices}) == 4
    assert np.ptp(copy.memory_bytes) > 0
    monkeypatch.setattr(
        "training.runs.problem_sets.split", lambda families, which: ["transformer:layers=1,width=64,heads=2"]
    )
    chosen = ProblemSet(clusters=("p100:devices=2",), randomised=1, groups=(4, 8), variants=3, test_groups=5)
    train = load_problems(chosen)
    assert len(train) == 3
    assert {problem.graph.num_units for problem in train} == {4, 8}
    assert {problem.graph.num_units for problem in load_problems(chosen, "test")} == {5}


def test_slow_devices_are_slower_and_never_all() -> None:
    cluster = load_cluster("p100:devices=4")
    rng = np.random.default_rng(0)
    speeds = np.array([
        [device.flops_per_second for device in randomised(cluster, 1.0, rng, unequal=True, slow=1.0).devices]
        for _ in range(50)
    ]) / cluster.devices[0].flops_per_second  # fmt: skip
    assert (speeds <= 2.0).all()
    assert (speeds >= 1 / 64).all()
    assert (speeds.min(axis=1) < 0.2).mean() > 0.5
    assert (speeds.max(axis=1) >= 0.5).all()
    copies = [randomised(cluster, 1.0, rng, unequal=True, slow=1.0) for _ in range(50)]
    shares = np.array([np.sort(copy.memory_bytes / cluster.memory_bytes) for copy in copies])
    assert (shares[:, 1:] >= ROOMY / 2).all(), "three of the four are slow, and have much"
    assert (shares[:, 0] >= 0.5 / TIGHT).all()
    assert shares[:, 0].min() < 0.2
    assert shares[:, 0].max() > 1
    assert {d.flops_per_second for d in randomised(cluster, 1.0, rng, slow=1.0).devices} == {
        cluster.devices[0].flops_per_second
    }, "only unequal copies have slow devices"


def test_other_times_are_one_factor_for_each_kind_of_op() -> None:
    problem = Problem(load_graph("transformer:layers=1,width=64,heads=2"), load_cluster("p100:devices=2"))
    other = with_other_times(problem, np.random.default_rng(0))
    factors = costs_of(other).op_seconds / np.maximum(costs_of(problem).op_seconds, 1e-30)
    kinds = np.array(problem.graph.kinds)
    seen = {kind: factors[kinds == kind][costs_of(problem).op_seconds[kinds == kind] > 0] for kind in set(kinds)}
    known = {kind: values for kind, values in seen.items() if len(values)}
    assert all(np.allclose(values, values[0]) for values in known.values())
    every = np.array([values[0] for values in known.values()])
    assert (every * (1 + 1e-9) >= 1 / FACTOR).all()
    assert (every <= FACTOR * (1 + 1e-9)).all()
    assert np.ptp(every) > 1


def test_some_training_problems_are_forward_passes_and_some_take_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "training.runs.problem_sets.split", lambda families, which: ["transformer:layers=1,width=64,heads=2"]
    )
    clusters = ("p100:devices=2", "p100:devices=3", "p100:devices=4", "v100:devices=2")
    chosen = ProblemSet(clusters=clusters, groups=(6, 8), forward=0.5, measured=0.5)
    train = load_problems(chosen)
    assert {problem.graph.is_training for problem in train} == {True, False}
    assert {problem.timed_by for problem in train} == {"roofline", ""}
    assert all(
        problem.graph.is_training and problem.timed_by == "roofline" for problem in load_problems(chosen, "test")
    )
