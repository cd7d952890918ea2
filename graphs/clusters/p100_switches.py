"""P100 GPUs on PCIe switches of one server: GPUs behind one switch talk directly, all others over its one uplink."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical

CONFIGURATIONS = ("switches=2,devices=2", "switches=2,devices=4")


def build(*, switches: int = 2, devices: int = 2) -> Cluster:
    """`devices` GPUs on each switch; what leaves a switch shares its uplink, of 16 lanes like each GPU's."""
    lanes = link("pcie3x16")
    between = Level(switches, lanes.bandwidth, 2 * lanes.latency_seconds, "group")  # ours: two hops, twice that of one
    within = Level(devices, lanes.bandwidth, lanes.latency_seconds, "device")
    return hierarchical(f"p100_switches:switches={switches},devices={devices}", device("p100"), (between, within))
