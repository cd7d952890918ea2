"""Clusters refuse what makes no sense, and say which device or pair is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from tests.oracle.toys import toy_cluster

TWO = (Device("a", "gpu", 1.0, 1.0, 1.0), Device("b", "gpu", 1.0, 1.0, 1.0))


def test_a_device_without_speed_is_refused() -> None:
    with pytest.raises(InputError, match=r"device 'a': flops_per_second is 0\.0; expected a number > 0"):
        Device("a", "gpu", 0.0, 1.0, 1.0)
    with pytest.raises(InputError, match="device 'a': memory_bytes is nan"):
        Device("a", "gpu", 1.0, 1.0, float("nan"))


def test_a_cluster_needs_devices_with_distinct_names() -> None:
    with pytest.raises(InputError, match="has no devices"):
        Cluster("none", (), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0), np.int64))
    with pytest.raises(InputError, match="names must be unique, got a, a"):
        Cluster("twins", (TWO[0], TWO[0]), np.zeros((2, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))
    with pytest.raises(InputError, match="needs at least one"):
        toy_cluster(0)


def test_a_pair_without_bandwidth_is_named() -> None:
    bandwidth = np.array([[0.0, 1.0], [0.0, 0.0]])  # diagonals are not read
    with pytest.raises(InputError, match=r"bandwidth from 'b' to 'a' is 0\.0"):
        Cluster("one way", TWO, np.zeros((2, 2)), bandwidth, np.zeros((2, 2), np.int64))


def test_matrices_must_have_a_row_per_device() -> None:
    with pytest.raises(InputError, match=r"latency has shape \(1, 2\), expected \(2, 2\)"):
        Cluster("flat", TWO, np.zeros((1, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))


def test_transfers_from_one_device_share_a_channel_only_if_asked() -> None:
    apart = ~np.eye(3, dtype=np.bool_)
    assert len(np.unique(toy_cluster(3, shared_out=True).channel[apart])) == 3
    assert len(np.unique(toy_cluster(3).channel[apart])) == 6


def test_the_fingerprint_changes_with_devices_and_links() -> None:
    one = toy_cluster(2).fingerprint
    assert one == toy_cluster(2).fingerprint
    others = (toy_cluster(3), toy_cluster(2, memory=5), toy_cluster(2, latency=1.0), toy_cluster(2, gap=1.0))
    assert len({one, *(other.fingerprint for other in others)}) == 5


def test_holds_by_messages_and_by_the_runner_change_the_fingerprint_and_none_of_them_leaves_it_as_it_was() -> None:
    cluster = toy_cluster(2)
    assert cluster.fingerprint == "0ba5713edb1ed213"
    assert repr(TWO[0]) == (
        "Device(name='a', kind='gpu', flops_per_second=1.0, bytes_per_second=1.0, memory_bytes=1.0, launch_seconds=0.0)"
    )
    assert repr(replace(TWO[0], message_seconds=0.5)).endswith("launch_seconds=0.0, message_seconds=0.5)")
    held = [replace(TWO[0], **{key: 1.0}) for key in HOLDS]  # type: ignore[arg-type]
    clusters = [cluster, *(replace(cluster, devices=(each, TWO[1])) for each in (TWO[0], *held))]
    assert len({each.fingerprint for each in clusters}) == 6


def test_the_fingerprint_does_not_depend_on_how_channels_are_numbered() -> None:
    one = toy_cluster(3, shared_out=True, gap=1.0)
    renumbered = replace(one, channel=5 - one.channel, gap=np.full(9, 1.0), multicast=np.zeros(9, np.bool_))
    assert renumbered.fingerprint == one.fingerprint
    gap = np.full(9, 1.0)
    gap[5] = 2.0
    assert replace(renumbered, gap=gap).fingerprint != one.fingerprint


HOLDS = ("runner_seconds", "message_seconds", "message_seconds_per_byte", "pass_seconds")


@pytest.mark.parametrize("key", ["flops_per_second", "bytes_per_second", "memory_bytes", "launch_seconds", *HOLDS])
def test_a_quantity_beyond_any_machine_is_refused(key: str) -> None:
    value = 1e-300 if "per_second" in key else 1e308
    with pytest.raises(InputError, match=f"{key} is 1e.30.*; expected a number"):
        replace(TWO[0], **{key: value})  # type: ignore[arg-type]


def test_channels_that_no_pair_uses_may_be_left_out_of_either_list() -> None:
    zeros = np.zeros((2, 2))
    cluster = Cluster("two", TWO, zeros, zeros + 1, np.array([[0, 0], [1, 0]]), np.ones(3), np.ones(2, np.bool_))
    assert cluster.gap.tolist() == [1, 1, 1]
    assert cluster.multicast.tolist() == [True, True, False]
    with pytest.raises(InputError, match=r"latency from .* is 1e.308; expected seconds >= 0, to 1e.18"):
        Cluster("two", TWO, zeros + 1e308, zeros + 1, np.array([[0, 0], [1, 0]]))
    with pytest.raises(InputError, match=r"bandwidth from .* is 1e-300; expected bytes/s > 0, from 1e-18"):
        Cluster("two", TWO, zeros, zeros + 1e-300, np.array([[0, 0], [1, 0]]))
