"""P100 GPUs on PCIe switches of one server: GPUs behind one switch talk directly, all others over its one uplink."""

from __future__ import annotations

from graphs.cluster import Cluster
from graphs.clusters.p100 import P100, PCIE_BANDWIDTH, PCIE_LATENCY
from graphs.topology import Level, hierarchical

CONFIGURATIONS = ("switches=2,devices=2", "switches=2,devices=4")


def build(*, switches: int = 2, devices: int = 2) -> Cluster:
    """`devices` GPUs on each switch; what leaves a switch shares its uplink, of 16 lanes like each GPU's."""
    between = Level(switches, PCIE_BANDWIDTH, 2 * PCIE_LATENCY, "group")  # latency ours: two hops, twice that of one
    within = Level(devices, PCIE_BANDWIDTH, PCIE_LATENCY, "device")
    return hierarchical(f"p100_switches:switches={switches},devices={devices}", P100, (between, within))
