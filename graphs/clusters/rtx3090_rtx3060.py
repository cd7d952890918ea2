"""A computer at home with an RTX 3090 and an RTX 3060: a second card, of a third of the speed and half the memory.

Both cards have eight lanes of PCIe 4.0, as boards for desktop processors divide their sixteen among two slots. GeForce
cards have no peer-to-peer access: what one sends to the other passes through the host's memory (see
`graphs/devices/catalogue.toml`). Many ask how to split a model on such pairs: github.com/oobabooga/textgen/issues/5009
with a 3060 and a slower card, github.com/ggml-org/llama.cpp/issues/11864 with two unequal ones.
"""

from graphs.cluster import Cluster
from graphs.devices.catalogue import catalogue
from graphs.devices.servers import Server, cluster_of_servers

CONFIGURATIONS = ("link=pcie4x8", "link=pcie3x4")


def build(*, link: str = "pcie4x8") -> Cluster:
    """The 3090 is device 0. Raises InputError for an unknown link."""
    server = Server.of(catalogue(), ["rtx3090", "rtx3060"], link)
    return cluster_of_servers(f"rtx3090_rtx3060:link={link}", [server])
