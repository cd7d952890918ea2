"""Any mixture of devices and links of the catalogue, in one server or several."""

from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue
from graphs.devices.servers import Server, cluster_of_servers
from graphs.foundation.by_name import spec_of
from graphs.foundation.errors import located

CONFIGURATIONS = (
    "servers=rtx4090+rtx3060@pcie3x4,link=pcie4x16",
    "servers=rtx3090x2/rtx3060x2,link=pcie4x8,network=10gbe",
)


def build(*, servers: str, link: str = "", network: str = "") -> Cluster:
    """Servers with / between them, and devices with + between them: "rtx3090x2+rtx3060@pcie3x4/a100-80gb".

    What joins devices of a server is the `link`, or that after the @ of a device; the `network` joins servers.
    Raises InputError for an unknown name, and where a link or the network is missing.
    """
    knobs = {"servers": servers, "link": link, "network": network}
    name = spec_of("mixed", {knob: value for knob, value in knobs.items() if value})
    with located(name):
        found = [Server.of(catalogue(), server.split("+"), link, network) for server in servers.split("/")]
    return cluster_of_servers(name, found)
