"""The three testbeds of DAPPLE (Fan et al. 2021, table III): sixteen V100 GPUs in servers on Ethernet."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError

CONFIGURATIONS = ("testbed=A", "testbed=B", "testbed=C")

NVLINK_BANDWIDTH = 130e9  # bytes/s, as in the paper
GPUS = 16
TESTBEDS = {"A": (8, 25e9 / 8), "B": (1, 25e9 / 8), "C": (1, 10e9 / 8)}  # GPUs per server, network bytes/s


def build(*, testbed: str = "A") -> Cluster:
    """A: eight GPUs per server, 25 Gbit/s between servers. B: one GPU, 25 Gbit/s. C: one GPU, 10 Gbit/s.

    A server has one network card. Raises InputError for another testbed.
    """
    if testbed not in TESTBEDS:
        raise InputError(unknown("testbed of DAPPLE", testbed, TESTBEDS))
    per_server, network = TESTBEDS[testbed]
    between = Level(GPUS // per_server, network, link("25gbe").latency_seconds, "group")
    within = Level(per_server, NVLINK_BANDWIDTH, link("nvlink2").latency_seconds, "device")
    return hierarchical(f"dapple:testbed={testbed}", device("v100"), (between, within))
