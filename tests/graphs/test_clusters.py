"""The machines that come with placelab have the links that their sources describe."""

import itertools
import json
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.cluster import GIB, Cluster, Device
from graphs.devices.cluster_file import ClusterFile, load_cluster_file, save_cluster
from graphs.devices.topology import Level, hierarchical
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

TOY = Device("gpu", "gpu", 1.0, 1.0, 1.0)
SPECS = [
    f"{name}:{knobs}"
    for name in by_name.built_in("graphs.clusters")
    for knobs in by_name.constants("graphs.clusters", name)["CONFIGURATIONS"]
]


def test_cards_of_one_server_talk_over_nvlink_and_servers_over_their_one_network_card() -> None:
    cluster = load_cluster("dapple:testbed=A")
    assert len(cluster) == 16
    assert cluster.bandwidth[0, 7] == 130e9
    assert cluster.bandwidth[0, 8] == cluster.bandwidth[15, 3] == 25e9 / 8
    assert len({int(cluster.channel[source, 8]) for source in range(8)}) == 1  # the card of the first server
    assert cluster.channel[0, 8] != cluster.channel[8, 0]
    assert cluster.channel[0, 1] != cluster.channel[1, 0]


def test_each_published_machine() -> None:
    placeto = load_cluster("p2_8xlarge:links=placeto")
    assert (placeto.bandwidth[0, 1], placeto.gap[0], placeto.hold_seconds[0]) == (7600e6, 25e-6, 5.7e-6)
    assert placeto.multicast.all()
    assert placeto.channel[2, 3] == placeto.channel[2, 7] != placeto.channel[3, 2]
    assert load_cluster("p2_8xlarge:links=tofu").bandwidth[0, 1] == 21e9
    assert len(load_cluster("dapple:testbed=C")) == 16
    assert load_cluster("dapple:testbed=C").bandwidth[0, 1] == 10e9 / 8
    elastic = load_cluster("pipetransformer:servers=2")
    assert (elastic.bandwidth[0, 7], elastic.bandwidth[0, 8]) == (15.754e9, 5e9)
    a100 = load_cluster("dgx_a100:servers=2")
    assert (a100.bandwidth[0, 7], a100.bandwidth[0, 8]) == (300e9, 25e9)
    larger = load_cluster("dgx_a100:servers=2,memory=80")
    assert load_cluster(larger.name).fingerprint == larger.fingerprint
    assert (larger.devices[0].memory_bytes, a100.devices[0].memory_bytes) == (80 * GIB, 40 * GIB)
    with pytest.raises(InputError, match="unknown memory '60'; there are: 40, 80"):
        load_cluster("dgx_a100:memory=60")
    assert a100.channel[0, 8] != a100.channel[1, 8]  # a network card each
    assert load_cluster("dgx_h100:servers=1").bandwidth[0, 7] == 450e9
    switches = load_cluster("p100_switches:switches=2,devices=2")
    assert switches.channel[0, 2] == switches.channel[1, 3] != switches.channel[0, 1]


@pytest.mark.parametrize("spec", SPECS)
def test_a_machine_reaches_every_device_and_survives_its_file(spec: str, tmp_path: Path) -> None:
    cluster = load_cluster(spec)
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    assert (cluster.bandwidth[apart] > 0).all()
    assert np.isfinite(cluster.bandwidth[apart]).all()
    save_cluster(cluster, tmp_path / "a.cluster.json")
    again = load_cluster_file(tmp_path / "a.cluster.json")
    assert again.fingerprint == cluster.fingerprint


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["pair", "device", "group"])), min_size=1, max_size=3))
def test_a_channel_of_a_hierarchy_has_one_level_and_one_sender(drawn: list[tuple[int, str]]) -> None:
    levels = [Level(count, 10.0**-index, 0.0, shared) for index, (count, shared) in enumerate(drawn)]  # type: ignore[arg-type]
    cluster = hierarchical("toy", TOY, levels)
    counts = [level.count for level in levels]
    places = list(itertools.product(*map(range, counts)))
    assert len(cluster) == len(places)
    users: dict[int, set[object]] = {}
    for (i, one), (j, other) in itertools.permutations(enumerate(places), 2):
        level = next(index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        assert cluster.bandwidth[i, j] == 10.0**-level
        owner = {"pair": (i, j), "device": i, "group": one[: level + 1]}[levels[level].shared]
        users.setdefault(int(cluster.channel[i, j]), set()).add((level, owner))
    assert all(len(who) == 1 for who in users.values())
    assert max(Counter(next(iter(who)) for who in users.values()).values(), default=1) == 1


def test_an_empty_level_and_an_unknown_machine_are_refused() -> None:
    with pytest.raises(InputError, match="a level has 0 groups or devices"):
        hierarchical("toy", TOY, [Level(0, 1.0, 0.0, "pair")])
    with pytest.raises(InputError, match="unknown testbed of DAPPLE 'D'"):
        load_cluster("dapple:testbed=D")
    with pytest.raises(InputError, match="the machine has 8 GPUs"):
        load_cluster("p2_8xlarge:devices=9")
    with pytest.raises(InputError, match="unknown description of p2_8xlarge's links 'nvlink'"):
        load_cluster("p2_8xlarge:links=nvlink")


def test_the_schema_names_what_a_file_holds() -> None:
    schema = json.dumps(msgspec.json.schema(ClusterFile))
    for struct_field in msgspec.structs.fields(ClusterFile):
        assert f'"{struct_field.name}"' in schema
    assert '"additionalProperties": false' in schema


@pytest.mark.parametrize(
    "spec",
    ["p100x100000", "p100:devices=4097", "cpu_gpu:gpus=100000", "dgx_h100:servers=99999999999", "p100_switchesx9999"],
)
def test_more_devices_than_can_be_simulated_are_refused_before_anything_is_allocated(spec: str) -> None:
    with pytest.raises(InputError, match=r"cluster '.*' has \d+ devices; at most 4096 can be simulated"):
        load_cluster(spec)


def test_the_limit_holds_on_every_way_to_a_cluster() -> None:
    with pytest.raises(InputError, match="has 100000 devices"):
        Cluster.uniform("toy", TOY, 100000, latency=0.0, bandwidth=1.0, shared_out=True)
    with pytest.raises(InputError, match="has 1000000 devices"):
        hierarchical("toy", TOY, [Level(1000, 1.0, 0.0, "pair"), Level(1000, 1.0, 0.0, "pair")])
    with pytest.raises(InputError, match="has 5000 devices"):
        Cluster("toy", (TOY,) * 5000, np.zeros((1, 1)), np.ones((1, 1)), np.zeros((1, 1), np.int64))
    with pytest.raises(InputError, match="has no devices"):
        Cluster.uniform("toy", TOY, 0, latency=0.0, bandwidth=1.0, shared_out=True)


def test_transfers_that_leave_one_device_of_a_server_share_its_channel() -> None:
    cluster = load_cluster("cpu_gpu:gpus=2")
    for source, channels in enumerate(cluster.channel.tolist()):
        assert set(channels) == {source}
