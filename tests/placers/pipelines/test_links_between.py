"""Links between sets of devices, by hand."""

from dataclasses import replace

import numpy as np

from graphs.cluster import Cluster, Device
from placers.pipelines.links_between import LinksBetween


def cluster() -> Cluster:
    """Three devices in full connection; the links to the last one are slow and take long to begin."""
    devices = tuple(Device(f"gpu:{number}", "gpu", 1.0, 1.0, 1.0) for number in range(3))
    latency, bandwidth = np.full((3, 3), 0.5), np.full((3, 3), 8.0)
    latency[:, 2], bandwidth[:, 2] = 2.0, 4.0
    return Cluster("three", devices, latency, bandwidth, np.arange(9).reshape(3, 3))


def test_of_micro_batches_in_turns_the_slowest_link_counts() -> None:
    """Every second one goes over each link, which has 1/8 or 1/4 second per byte."""
    found = LinksBetween(cluster()).taking_turns((0,), (1, 2))
    assert found == (2.0, 1 / 4, (1 / 4) / 2)


def test_what_stays_on_a_device_is_not_sent() -> None:
    assert LinksBetween(cluster()).taking_turns((0, 1), (0, 1)) == (0.0, 0.0, 0.0)


def test_whole_copies_come_from_the_sender_in_the_same_place_and_the_busiest_link_counts() -> None:
    """Both copies of a single sender go over links of their own, and what a device has is not sent to it."""
    assert LinksBetween(cluster()).copying((0,), (1, 2)) == (2.0, 1 / 4, 1 / 4)
    assert LinksBetween(cluster()).copying((0, 1), (1, 2)) == (2.0, 1 / 4, 1 / 4)
    one_link = replace(cluster(), channel=np.zeros((3, 3), np.int64))
    assert LinksBetween(one_link).copying((0,), (1, 2)) == (2.0, 1 / 4, 1 / 8 + 1 / 4)
