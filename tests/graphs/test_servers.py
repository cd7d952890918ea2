"""Clusters of unlike servers: written in a few lines, and joined by the narrowest link on each way."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.expansion.nccl import all_reduce_seconds
from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue, device, link
from graphs.devices.cluster_file import load_cluster_file, save_cluster
from graphs.devices.servers import Server, cluster_of_servers
from graphs.devices.topology import Level, hierarchical
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError

FEW_LINES = """
[[servers]]
devices = ["rtx3090@pcie4x16", "rtx3060"]
link = "pcie3x4"

[[servers]]
devices = ["a100-80gbx2"]
link = "nvlink3"

[network]
link = "10gbe"
"""
OWN = """
[[servers]]
devices = ["card", "t4"]
link = "cable"
count = 2
network = "1gbe"

[catalogue.devices.card]
kind = "gpu"
flops_per_second = "20TFLOP/s"
bytes_per_second = "500GB/s"
memory = "10GiB"

[catalogue.links.cable]
bandwidth = "5GB/s"
latency = "30us"
"""


def written(tmp_path: Path, text: str, name: str = "mine.cluster.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_few_lines_describe_a_mixture(tmp_path: Path) -> None:
    cluster = load_cluster_file(written(tmp_path, FEW_LINES))
    assert cluster.name == "mine"
    assert [each.name for each in cluster.devices] == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
    assert [each.memory_bytes / 2**30 for each in cluster.devices] == [24, 12, 80, 80]
    assert cluster.bandwidth[0, 1] == cluster.bandwidth[1, 0] == 3e9  # the slower card's lanes
    assert cluster.bandwidth[2, 3] == 300e9
    assert cluster.bandwidth[0, 2] == cluster.bandwidth[3, 1] == 1.25e9
    assert cluster.latency[0, 1] == 10e-6
    assert cluster.latency[0, 2] == 25e-6
    assert cluster.channel[0, 2] == cluster.channel[1, 3] != cluster.channel[2, 0]  # each server has one card
    assert len({int(cluster.channel[0, 1]), int(cluster.channel[1, 0]), int(cluster.channel[0, 2])}) == 3


def test_the_same_by_spec(tmp_path: Path) -> None:
    spec = "mixed:servers=rtx3090@pcie4x16+rtx3060@pcie3x4/a100-80gbx2,link=nvlink3,network=10gbe"
    assert load_cluster(spec).fingerprint == load_cluster_file(written(tmp_path, FEW_LINES)).fingerprint
    assert load_cluster(spec).name == spec
    assert load_cluster(spec.replace("servers=", "")).name == spec  # the name of the first knob may be left out


def test_a_file_may_add_devices_and_links_and_copies_of_a_server(tmp_path: Path) -> None:
    cluster = load_cluster_file(written(tmp_path, OWN))
    assert len(cluster) == 4
    assert cluster.devices[2].memory_bytes == cluster.devices[0].memory_bytes == 10 * 2**30
    assert cluster.devices[3].flops_per_second == device("t4").flops_per_second
    assert (cluster.bandwidth[0, 1], cluster.latency[2, 3]) == (5e9, 30e-6)
    assert (cluster.bandwidth[0, 2], cluster.latency[0, 2]) == (0.125e9, 100e-6)


def test_it_is_written_in_full_and_read_back(tmp_path: Path) -> None:
    cluster = load_cluster_file(written(tmp_path, FEW_LINES))
    save_cluster(cluster, tmp_path / "full.cluster.toml")
    assert "placelab.cluster" in (tmp_path / "full.cluster.toml").read_text()
    assert load_cluster_file(tmp_path / "full.cluster.toml").fingerprint == cluster.fingerprint


def test_lanes_narrower_than_the_network_are_what_a_transfer_waits_for() -> None:
    known = catalogue()
    servers = [Server.of(known, ["t4", "t4"], "pcie3x4", "400gbe"), Server.of(known, ["h100"], "pcie5x16", "400gbe")]
    cluster = cluster_of_servers("narrow", servers)
    assert cluster.bandwidth[0, 2] == cluster.bandwidth[2, 0] == link("pcie3x4").bandwidth
    assert cluster.channel[0, 2] == cluster.channel[0, 1] != cluster.channel[1, 2]
    wide = cluster_of_servers("wide", [Server.of(known, ["t4", "t4"], "pcie3x16", "10gbe")] * 2)
    assert wide.channel[0, 2] == wide.channel[1, 3]
    cards = cluster_of_servers("cards", [Server.of(known, ["t4", "t4"], "pcie3x16", "10gbe")] * 2, "device")
    assert cards.channel[0, 2] == cards.channel[0, 3] != cards.channel[1, 3]
    assert cards.channel[0, 2] != cards.channel[0, 1]


def test_what_goes_through_the_host_shares_its_roots(tmp_path: Path) -> None:
    """Of eight cards of a measured server four pairs send 24.5 GB/s together, and one pair alone 10.8 (Sailor)."""
    file = tmp_path / "titans.cluster.toml"
    file.write_text(
        '[[servers]]\ndevices = ["titan-rtxx8", "t4@pcie3x4"]\nlink = "pcie3x16"\nroot = "pcie3x16"\nroots = 2\n'
        'count = 2\n[network]\nlink = "100gbe"\n'
    )
    cluster, lane = load_cluster_file(file), link("pcie3x16")
    channel = cluster.channel
    assert channel[0, 1] == channel[4, 8] != channel[5, 1] == channel[7, 2]  # five of nine devices at the first root
    assert channel[8, 1] not in (channel[0, 1], channel[5, 1])  # its own lanes are narrower
    assert channel[9, 10] != channel[0, 1]  # of another server
    assert cluster.bandwidth[0, 5] == lane.bandwidth
    alone = cluster_of_servers("alone", [Server.of(catalogue(), ["titan-rtxx8"], "pcie3x16", root="pcie3x16", roots=2)])
    assert all_reduce_seconds(alone, range(8), 1e9) == pytest.approx(
        34e-6 + 4 * 2 * 7 / 8 * 1e9 / lane.bandwidth / 0.87, rel=1e-12
    )
    assert all_reduce_seconds(alone, range(4, 6), 1e9) == pytest.approx(34e-6 + 2e9 / lane.bandwidth / 0.87, rel=1e-12)


@pytest.mark.parametrize(("cards", "shared"), [("server", "group"), ("device", "device")])
def test_equal_servers_are_what_levels_make(cards: str, shared: str) -> None:
    servers = [Server.of(catalogue(), ["v100x4"], "nvlink2", "25gbe")] * 3
    made = cluster_of_servers("three", servers, cards)  # type: ignore[arg-type]
    nvlinks, network = link("nvlink2"), link("25gbe")
    levels = (
        Level(3, network.bandwidth, network.latency_seconds, shared),  # type: ignore[arg-type]
        Level(4, nvlinks.bandwidth, nvlinks.latency_seconds, "device"),
    )
    assert made.fingerprint == hierarchical("three", device("v100"), levels).fingerprint


DEVICES = st.lists(st.sampled_from(["rtx3090", "rtx3060@pcie3x4", "a100-80gb@nvlink3", "laptop-cpu"]), min_size=1)


@given(st.lists(st.tuples(DEVICES, st.sampled_from(["1gbe", "100gbe"])), min_size=1, max_size=4))
def test_no_way_is_faster_than_any_link_on_it_and_no_server_sends_more_than_its_card(
    described: list[tuple[list[str], str]],
) -> None:
    known = catalogue()
    servers = [Server.of(known, devices, "pcie4x8", network) for devices, network in described]
    cluster = cluster_of_servers("any", servers)
    own = [joined.bandwidth for server in servers for joined in server.links]
    home = [at for at, server in enumerate(servers) for _ in server.devices]
    for source, target in np.argwhere(~np.eye(len(cluster), dtype=np.bool_)):
        ends = [own[source], own[target]]
        if home[source] != home[target]:
            ends += [servers[home[end]].network.bandwidth for end in (source, target)]
        assert cluster.bandwidth[source, target] == min(ends)
    assert senders_of_each_channel(cluster, home) <= 1


def senders_of_each_channel(cluster: Cluster, home: list[int]) -> int:
    """The most servers that send on one channel; 0 if there are no channels."""
    pairs = np.argwhere(~np.eye(len(cluster), dtype=np.bool_))
    senders: dict[int, set[int]] = {}
    for source, target in pairs:
        senders.setdefault(int(cluster.channel[source, target]), set()).add(home[source])
    return max(map(len, senders.values()), default=0)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("mixed:rtx3091", r"mixed:servers=rtx3091: unknown device 'rtx3091'; did you mean 'rtx3090'\?"),
        ("mixed:rtx3091x2,link=pcie4x8", "unknown device 'rtx3091x2'; did you mean 'rtx3090'"),
        ("mixed:rtx3090x2", "nothing says what joins 'rtx3090x2' to the other devices of its server; .*@pcie4x16"),
        ("mixed:rtx3090+rtx3060", "nothing says what joins 'rtx3090' to the other devices"),
        ("mixed:rtx3090/t4", "nothing joins its 2 servers; give a network, such as 10gbe"),
        ("mixed:rtx3090x0", "'rtx3090x0': expected at least one device"),
        ("mixed:rtx3090x9999,link=pcie3x4", "9999 devices; at most 4096"),
        ("mixed:rtx3090x2,link=pcie4x2", r"unknown link 'pcie4x2'; did you mean 'pcie4x8'\?"),
        ("mixed:rtx3090/t4,network=10gb", r"unknown link '10gb'; did you mean '10gbe'\?"),
        ("mixed", "'mixed' needs its knob 'servers'"),
        ("rtx3090_rtx3060:link=pcie", "unknown link 'pcie'"),
        ("home_fleet:network=wifi", "unknown link 'wifi'"),
    ],
)
def test_what_names_nothing_is_refused_in_a_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_cluster(spec)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            '"rtx3060"]',
            '"rtx306"]',
            r"mine\.cluster\.toml: servers\[0\]: unknown device 'rtx306'; did you mean 'rtx3060'",
        ),
        ('link = "nvlink3"', "", r"servers\[1\]: nothing says what joins 'a100-80gbx2'"),
        ('[network]\nlink = "10gbe"', "", "nothing joins its 2 servers"),
        (
            'link = "10gbe"',
            'link = "10gbe"\ncards = "rack"',
            "network.cards: unknown value 'rack'; there are: ",
        ),
        (
            'link = "nvlink3"',
            'link = "nvlink3"\nroot = "pcie3x16"\nroots = 3',
            r"servers\[1\]: a server has 2 devices and 3 roots",
        ),
        ('link = "nvlink3"', 'link = "nvlink3"\nroots = 2', r"servers\[1\]: it has 2 roots, and nothing says how fast"),
        ('link = "nvlink3"', 'link = "nvlink3"\ncount = 0', r"servers\[1\].count: expected a whole number >= 1, got 0"),
        (
            'link = "nvlink3"',
            'link = "nvlink3"\ncount = 9999',
            r"servers\[1\].count: expected a whole number <= 4096, got 9999",
        ),
        (
            '["a100-80gbx2"]',
            '"a100-80gbx2"',
            r"expected a list, got a text; write a list, \[\"a100-80gbx2\"\]",
        ),
        (
            'link = "nvlink3"',
            'link = "nvlink3"\ncount = "2"',
            "expected a whole number, got a text; write 2 without quotes",
        ),
        ('["a100-80gbx2"]', "[]", r"servers\[1\].devices: expected a list of length >= 1"),
        ("[network]", '[links]\nbandwidth = "1GB/s"\n[network]', "links: this file lists servers"),
        ("[[servers]]", "[[server]]", r"unknown key 'server'; did you mean 'servers'\?"),
    ],
)
def test_a_slip_in_a_file_is_refused_with_its_place(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in FEW_LINES
    with pytest.raises(InputError, match=sentence):
        load_cluster_file(written(tmp_path, FEW_LINES.replace(old, new)))


def test_a_network_without_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="network: only servers use it"):
        load_cluster_file(written(tmp_path, FEW_LINES.partition("[network]")[1] + '\nlink = "10gbe"\n'))
    with pytest.raises(InputError, match="cluster 'empty' has no devices"):
        load_cluster_file(written(tmp_path, "", "empty.toml"))


def test_the_three_unequal_presets() -> None:
    home = load_cluster("rtx3090_rtx3060")
    assert [each.memory_bytes / 2**30 for each in home.devices] == [24, 12]
    assert home.bandwidth[0, 1] == link("pcie4x8").bandwidth
    feeding = load_cluster("v100_a100")
    assert [each.memory_bytes / 2**30 for each in feeding.devices] == [16, 16, 80]
    assert (feeding.bandwidth[0, 1], feeding.bandwidth[0, 2]) == (150e9, 1.25e9)
    assert feeding.channel[0, 2] == feeding.channel[1, 2] != feeding.channel[2, 0]
    fleet = load_cluster("home_fleet")
    assert [each.name for each in fleet.devices] == ["gpu:0", "gpu:1", "cpu:0"]
    assert (fleet.bandwidth[~np.eye(3, dtype=np.bool_)] == 0.125e9).all()
