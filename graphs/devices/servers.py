"""Clusters of unlike servers: each has devices of any kind on links of their own, and one network joins all.

    rtx3090 --- pcie4x16 --+                         +-- nvlink3 --- a100-80gb
                           +-- card == 10gbe == card +
    rtx3060 --- pcie3x4 ---+                         +-- nvlink3 --- a100-80gb

Between two devices of a server data goes over the links of both, through the host's memory or a switch: as fast as the
slower link, after the larger latency. What goes through the host's memory may share a PCIe root, or several, each of
which has as many of the devices. Between servers data goes over the network in addition. A path is one serial channel
of the simulator: the narrowest link on the sender's side, which is shared by all that leaves the device, the devices of
a root, or the network card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphs.cluster import Cluster, Device, check_count
from graphs.devices.catalogue import Catalogue, LinkSpeed
from graphs.devices.topology import named_by_kind
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats

Cards = Literal["server", "device"]

ANYTHING = LinkSpeed(np.inf, 0.0)  # where nothing is said of a link, and nothing needs to be
_DEVICE = re.compile(r"(?P<name>.+)x(?P<count>[0-9]+)")


@dataclass(frozen=True)
class Server:
    """Devices, what joins each of them to the others, and the server to the network."""

    devices: tuple[Device, ...]
    links: tuple[LinkSpeed, ...]  # (devices,)
    network: LinkSpeed = ANYTHING
    root: LinkSpeed = ANYTHING  # what all that the devices of a root send to others of the server shares
    roots: int = 1

    @classmethod
    def of(
        cls, known: Catalogue, devices: Sequence[str], link: str = "", network: str = "", root: str = "", roots: int = 1
    ) -> Server:
        """A server of devices by name: "rtx3090", two of them, "rtx3090x2", or on another link, "rtx3090@pcie3x4".

        Raises InputError for an unknown name, for several devices without a link, for more roots than devices, and for
        several roots without their speed.
        """
        found, links = list[Device](), list[LinkSpeed]()
        for text in devices:
            what, at, own = text.partition("@")
            device, count = _counted(known, what)
            if at or link:
                joined = known.link(own if at else link)
            elif len(devices) == count == 1:
                joined = ANYTHING
            else:
                raise InputError(
                    f"nothing says what joins {text!r} to the other devices of its server; give the server a link "
                    f"such as pcie4x16, or the device its own, {text}@pcie4x16"
                )
            found += [device] * count
            links += [joined] * count
        if roots > len(found):
            raise InputError(f"a server has {len(found)} devices and {roots} roots; give it no more than devices")
        if roots > 1 and not root:
            raise InputError(f"it has {roots} roots, and nothing says how fast each is; give a root such as pcie3x16")
        joined, shared = (known.link(name) if name else ANYTHING for name in (network, root))
        return cls(tuple(found), tuple(links), joined, shared, roots)

    @property
    def of_root(self) -> list[int]:
        """(devices,) the number of the root of each, the first ones at the first."""
        return [place * self.roots // len(self.devices) for place in range(len(self.devices))]


def cluster_of_servers(name: str, servers: Sequence[Server], cards: Cards = "server") -> Cluster:
    """The cluster of some servers, each with one network card, or with one for each device.

    Raises InputError for no devices, more than can be simulated, and several servers without a network.
    """
    check_count(name, sum(len(server.devices) for server in servers))
    if len(servers) > 1 and any(server.network is ANYTHING for server in servers):
        raise InputError(f"cluster {name!r}: nothing joins its {len(servers)} servers; give a network, such as 10gbe")
    home = np.repeat(np.arange(len(servers)), [len(server.devices) for server in servers])  # (devices,) server
    lanes, delay = _figures([link for server in servers for link in server.links])
    carried, sent = _figures([server.network for server in servers for _ in server.devices])
    rooted, passed = _figures([server.root for server in servers for _ in server.devices])
    roots = [(row, root) for row, server in enumerate(servers) for root in server.of_root]
    root = np.unique(roots, axis=0, return_inverse=True)[1]  # (devices,) numbers of roots
    narrowest, slowest = np.minimum(lanes, carried), np.maximum(delay, sent)
    inner, waited = np.minimum(lanes, rooted), np.maximum(delay, passed)
    together, apart = home[:, None] == home[None, :], ~np.eye(len(home), dtype=np.bool_)
    device = np.arange(len(home))
    card = len(home) + (home if cards == "server" else device)
    out = np.where(lanes < carried, device, card)  # what a device's transfers to other servers wait for
    within = np.where(lanes < rooted, device, 2 * len(home) + root)
    channel = np.where(together, within[:, None], out[:, None])
    numbered = np.zeros(channel.shape, np.int64)
    numbered[apart] = np.unique(channel[apart], return_inverse=True)[1]
    return Cluster(
        name,
        named_by_kind([device for server in servers for device in server.devices]),
        latency=np.where(together, np.maximum.outer(waited, waited), np.maximum.outer(slowest, slowest)),
        bandwidth=np.where(together, np.minimum.outer(inner, inner), np.minimum.outer(narrowest, narrowest)),
        channel=numbered,
    )


def _figures(links: Sequence[LinkSpeed]) -> tuple[Floats, Floats]:
    """(links,) bytes/s, and (links,) seconds of latency."""
    return np.array([link.bandwidth for link in links]), np.array([link.latency_seconds for link in links])


def _counted(known: Catalogue, text: str) -> tuple[Device, int]:
    """A device, and how many of it: "rtx3090" is one, "rtx3090x2" are two."""
    counted = None if text in known.devices else _DEVICE.fullmatch(text)
    if counted is None or counted["name"] not in known.devices:
        return known.device(text), 1  # or what is unknown about it
    if not (count := int(counted["count"])):
        raise InputError(f"{text!r}: expected at least one device")
    check_count(text, count)
    return known.device(counted["name"]), count
