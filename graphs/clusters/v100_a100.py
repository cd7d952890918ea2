"""Two V100 in one server that feed an A100 in another, over Ethernet: an older server next to a new one.

The V100, of 16 GB each, are joined by NVLink; the A100 has 80 GB. Owners of such pairs ask how to give the A100 more of
the work, as in github.com/yifding/hetseq/issues/11.
"""

from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue
from graphs.devices.servers import Server, cluster_of_servers

CONFIGURATIONS = ("network=10gbe", "network=25gbe")


def build(*, network: str = "10gbe") -> Cluster:
    """The V100 are devices 0 and 1, the A100 is device 2. Raises InputError for an unknown network."""
    known = catalogue()
    servers = [
        Server.of(known, ["v100x2"], "nvlink2", network),
        Server.of(known, ["a100-80gb"], "pcie4x16", network),
    ]
    return cluster_of_servers(f"v100_a100:network={network}", servers)
