"""Three machines of a household: a desktop with an RTX 4090, a Mac with an M1 Max, and a laptop's CPU.

One switch joins them. People pool such fleets, and split models by memory: the slowest machine then sets the pace, as
github.com/exo-explore/exo/issues/957 measures on five unequal Macs.
"""

from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue
from graphs.devices.servers import Server, cluster_of_servers

CONFIGURATIONS = ("network=1gbe", "network=10gbe")


def build(*, network: str = "1gbe") -> Cluster:
    """The 4090 is gpu:0, the Mac gpu:1, the laptop cpu:0. Raises InputError for an unknown network."""
    known = catalogue()
    servers = [
        Server.of(known, ["rtx4090"], "pcie4x16", network),
        Server.of(known, ["m1-max"], network=network),
        Server.of(known, ["laptop-cpu"], network=network),
    ]
    return cluster_of_servers(f"home_fleet:network={network}", servers)
