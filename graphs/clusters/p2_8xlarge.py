"""Amazon's p2.8xlarge, eight GPUs on four K80 boards, as Placeto's authors and as Tofu's authors describe it."""

from dataclasses import replace

from graphs.cluster import Cluster
from graphs.devices.catalogue import device
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError

CONFIGURATIONS = (
    "links=placeto,devices=8", "links=tofu,devices=8", "links=placeto,devices=2", "links=placeto,devices=4",
)  # fmt: skip

# Placeto's simulator: what its authors tuned to this machine (github.com/aravic/generalizable-device-placement).
PLACETO_BANDWIDTH, PLACETO_GAP, PLACETO_LAUNCH = 7600e6, 25e-6, 5.7e-6
TOFU_BANDWIDTH = 21e9  # bytes/s from GPU to GPU, section 7.1
TOFU_LATENCY = 10e-6  # seconds; ours: the order of one asynchronous copy between two GPUs


def build(*, devices: int = 8, links: str = "placeto") -> Cluster:
    """One outgoing bus per GPU.

    With links=placeto it is a multicast bus with a gap; with links=tofu one transfer per destination at the
    peer-to-peer rate. Raises InputError for other links, or more than eight devices.
    """
    if links not in ("placeto", "tofu"):
        raise InputError(unknown("description of p2_8xlarge's links", links, ("placeto", "tofu")))
    if not 1 <= devices <= 8:
        raise InputError(f"p2_8xlarge: devices is {devices}; the machine has 8 GPUs; expected 1 to 8")
    gpu = device("k80")  # 12 GB for each of a board's two GPUs: also Tofu (Wang et al. 2019, section 7.1)
    name = f"p2_8xlarge:links={links},devices={devices}"
    if links == "tofu":
        return Cluster.uniform(name, gpu, devices, latency=TOFU_LATENCY, bandwidth=TOFU_BANDWIDTH, shared_out=True)
    return Cluster.uniform(
        name, replace(gpu, launch_seconds=PLACETO_LAUNCH), devices, latency=0.0, bandwidth=PLACETO_BANDWIDTH,
        shared_out=True, gap=PLACETO_GAP, multicast=True,
    )  # fmt: skip
