"""What every cluster promises, whichever it is."""

from pathlib import Path

import pytest

from graphs.cluster import GIB, Cluster
from graphs.devices.cluster_file import load_cluster_file, save_cluster
from graphs.files.load import load_cluster
from graphs.foundation import by_name

SPECS = [
    f"{name}:{knobs}"
    for name in by_name.built_in("graphs.clusters")
    for knobs in by_name.constants("graphs.clusters", name)["CONFIGURATIONS"]
]


@pytest.fixture(params=SPECS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each listed configuration of each cluster in turn."""
    return load_cluster(request.param)


def test_every_cluster_lists_a_configuration() -> None:
    assert {spec.partition(":")[0] for spec in SPECS} == set(by_name.built_in("graphs.clusters"))


@pytest.mark.parametrize("spec", SPECS)
def test_its_name_is_its_spec(spec: str) -> None:
    assert load_cluster(spec).name == spec


def test_its_first_line_says_what_it_is() -> None:
    for name in by_name.built_in("graphs.clusters"):
        assert 20 < len(by_name.constants("graphs.clusters", name)["doc"]) < 120


def test_its_numbers_are_those_of_real_machines(cluster: Cluster) -> None:
    assert len(cluster) >= 2
    for device in cluster.devices:
        assert device.name.partition(":")[0] == device.kind
        assert 1e11 < device.flops_per_second < 1e15
        assert 1e10 < device.bytes_per_second < 1e13
        assert 4 * GIB <= device.memory_bytes <= 1024 * GIB
        assert device.launch_seconds < 1e-4


def test_a_file_of_it_is_the_same_cluster(cluster: Cluster, tmp_path: Path) -> None:
    save_cluster(cluster, tmp_path / "one.cluster.toml")
    assert load_cluster_file(tmp_path / "one.cluster.toml").fingerprint == cluster.fingerprint
