"""Randomised clusters: the same devices and channels, other speeds and memory within the spread."""

import numpy as np
import pytest

from graphs.load import load_cluster
from training.problems import load_problems
from training.randomised_clusters import LEAST_MEMORY, randomised
from training.recipe import ProblemSet


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
    monkeypatch.setattr("training.problems.split", lambda families, which: [tiny] * 2)
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
    monkeypatch.setattr("training.problems.split", lambda families, which: ["transformer:layers=1,width=64,heads=2"])
    chosen = ProblemSet(clusters=("p100:devices=2",), randomised=1, groups=(4, 8), variants=3, test_groups=5)
    train = load_problems(chosen)
    assert len(train) == 3
    assert {problem.graph.num_units for problem in train} == {4, 8}
    assert {problem.graph.num_units for problem in load_problems(chosen, "test")} == {5}
