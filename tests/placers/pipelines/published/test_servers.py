"""Servers of clusters, the seconds of collective operations and transfers, and which devices stages are given."""

from __future__ import annotations

import numpy as np
import pytest

from graphs.foundation import by_name
from placers.pipelines.published.device_policies import DeviceSets, append_first, fresh_first, scatter_first
from placers.pipelines.published.servers import DEVICE, PAIR, SERVER, Servers, send_seconds, sum_seconds


def servers(spec: str) -> Servers:
    return Servers.of(by_name.build("graphs.clusters", spec))


def counts(*devices: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(devices, np.int64)


def test_servers_are_found_by_their_links() -> None:
    two = servers("v100_servers:servers=2,devices=4,gbps=25")
    assert two.devices == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert two.links.between_bandwidth == pytest.approx(25e9 / 8)
    assert (two.links.within_channel, two.links.between_channel) == (DEVICE, SERVER)
    assert servers("p100:devices=3").devices == ((0, 1, 2),)
    assert servers("p100:devices=1").devices == ((0,),)
    assert servers("dapple:testbed=B").sizes.tolist() == [16]  # alike, so that a set of them is their number


def test_a_ring_goes_at_the_speed_of_its_slowest_link() -> None:
    links = servers("dapple:testbed=A").links
    assert sum_seconds(links, counts(1, 0)) == (0.0, 0.0)
    assert sum_seconds(links, counts(4, 0))[1] == pytest.approx(2 * 3 / 4 / links.within_bandwidth)
    assert sum_seconds(links, counts(8, 8))[1] == pytest.approx(2 * 15 / 16 / links.between_bandwidth)


def test_what_leaves_a_server_shares_its_network_card() -> None:
    links = servers("dapple:testbed=A").links
    network, nvlink = 1 / links.between_bandwidth, 1 / links.within_bandwidth
    assert send_seconds(links, counts(8, 0), counts(0, 8)) == pytest.approx((links.between_latency, network))
    assert send_seconds(links, counts(8, 6), counts(0, 2))[1] == pytest.approx(8 / 14 * network)
    assert send_seconds(links, counts(4, 0), counts(4, 0)) == pytest.approx((links.within_latency, nvlink / 4))
    pairs = links._replace(between_channel=PAIR)
    assert send_seconds(pairs, counts(8, 0), counts(0, 4))[1] == pytest.approx(network / 8)


def test_policies_by_hand() -> None:
    """Three servers of four devices, of which the second is used in part."""
    free, used = (4, 2, 4), (0, 2, 0)
    assert fresh_first(free, used, 3) == (3, 0, 0)
    assert fresh_first(free, used, 9) == (4, 1, 4)
    assert append_first(free, used, 3) == (1, 2, 0)
    assert scatter_first(free, used, 3) == (1, 2, 0)
    assert scatter_first((4, 4, 4), (0, 0, 0), 5) == (2, 2, 1)
    assert scatter_first((2, 1, 4), (2, 3, 0), 4) == (2, 1, 1)


@pytest.mark.parametrize("sizes", [(1,), (5,), (3, 2), (8, 8), (2,) * 4, (8,) * 8])
def test_moves_lead_from_set_to_set_and_leave_a_device(sizes: tuple[int, ...]) -> None:
    moves = DeviceSets.of(sizes)
    assert moves.devices.tolist() == list(sizes)
    assert not moves.used[0].any()
    at = np.repeat(np.arange(len(moves)), np.diff(moves.offsets))
    assert np.array_equal(moves.used[at] + moves.given, moves.used[moves.to])
    assert (moves.given >= 0).all()
    assert (moves.given.sum(axis=1) > 0).all()
    assert ((moves.devices - moves.used) >= 0).all()
    assert ((moves.devices - moves.used).sum(axis=1) > 0).all()
    if len(sizes) == 1:
        assert len(moves) == sizes[0]
