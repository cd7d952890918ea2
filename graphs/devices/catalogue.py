"""The catalogue: devices and links by name, with the numbers of their data sheets (`catalogue.toml`).

Clusters that come with placelab are made of these. Cluster files and the preset `mixed` name them, and a cluster file
may add its own in the same form:

    [catalogue.devices.my-card]
    kind = "gpu"
    flops_per_second = "20TFLOP/s"
    flops_by_precision = { tf32 = "40TFLOP/s", bf16 = "80TFLOP/s" }
    bytes_per_second = "500GB/s"
    memory = "12GiB"
    launch = "5us"

    [catalogue.links.my-cable]
    bandwidth = "2.5Gbit/s"
    latency = "100us"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from graphs.cluster import Device
from graphs.foundation.errors import InputError, located, unknown
from graphs.foundation.quantities import INFINITE, Flops, Size, Speed, Time, quantity

FILE = Path(__file__).with_suffix(".toml")
QUANTITIES = (  # of a device: the key in a file, the field of `Device`, the unit
    ("flops_per_second", "flops_per_second", "FLOP/s"), ("bytes_per_second", "bytes_per_second", "bytes/s"),
    ("memory", "memory_bytes", "bytes"), ("launch", "launch_seconds", "seconds"),
    ("runner", "runner_seconds", "seconds"), ("message", "message_seconds", "seconds"),
    ("message_per_byte", "message_seconds_per_byte", "seconds"), ("per_pass", "pass_seconds", "seconds"),
    ("collectives", "collective_bytes_per_second", "bytes/s"), ("reserved", "reserved_bytes", "bytes"),
)  # fmt: skip


@dataclass(frozen=True)
class LinkSpeed:
    """What joins devices, in one direction."""

    bandwidth: float  # bytes/s
    latency_seconds: float


class CatalogueDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a device can do."""

    about: str = ""
    kind: str
    flops_per_second: Flops
    flops_by_precision: dict[str, Flops] = {}
    bytes_per_second: Speed
    memory: Size
    launch: Time = 0.0
    runner: Time = 0.0
    message: Time = 0.0
    message_per_byte: Time = 0.0
    per_pass: Time = 0.0
    collectives: Speed = INFINITE
    reserved: Size = 0.0
    fragmentation: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    link: str = ""  # of the catalogue, by which it is usually joined to others of its server
    source: str = ""


class CatalogueLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a link can do."""

    about: str = ""
    bandwidth: Speed
    latency: Time = 0.0
    source: str = ""


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Devices and links by name."""

    devices: dict[str, CatalogueDevice] = {}
    links: dict[str, CatalogueLink] = {}

    def device(self, name: str) -> Device:
        """The device of a name, called by its kind. Raises InputError for an unknown one, or a wrong quantity."""
        if name not in self.devices:
            raise InputError(unknown("device", name, self.devices))
        return device_of(self.devices[name], self.devices[name].kind, f"devices.{name}")

    def link(self, name: str) -> LinkSpeed:
        """The link of a name. Raises InputError for an unknown one, or a wrong quantity."""
        if name not in self.links:
            raise InputError(unknown("link", name, self.links))
        entry, place = self.links[name], f"links.{name}"
        return LinkSpeed(
            quantity(entry.bandwidth, "bytes/s", f"{place}.bandwidth"),
            quantity(entry.latency, "seconds", f"{place}.latency"),
        )

    def extended(self, own: Catalogue) -> Catalogue:
        """A catalogue with a user's own names, too.

        Raises InputError for a name that both have, and for a wrong quantity, whether it is used or not.
        """
        for kind in ("devices", "links"):
            if both := getattr(self, kind).keys() & getattr(own, kind).keys():
                raise InputError(
                    f"catalogue.{kind}.{min(both)}: this name is in placelab's catalogue; choose another one"
                )
        with located("catalogue"):
            for name in own.devices:
                own.device(name)
            for name in own.links:
                own.link(name)
        return Catalogue(devices={**self.devices, **own.devices}, links={**self.links, **own.links})


def device_of(entry: Any, name: str, place: str) -> Device:
    """The device of an entry in a file. Raises InputError, naming the place in it, for a wrong quantity."""
    quantities = {field: quantity(getattr(entry, key), unit, f"{place}.{key}") for key, field, unit in QUANTITIES}
    peaks = {
        key: quantity(given, "FLOP/s", f"{place}.flops_by_precision.{key}")
        for key, given in entry.flops_by_precision.items()
    }
    return Device(name, entry.kind, **quantities, fragmentation=entry.fragmentation, flops_by_precision=peaks)


@cache
def catalogue() -> Catalogue:
    """The catalogue that comes with placelab."""
    return msgspec.toml.decode(FILE.read_bytes(), type=Catalogue)


def device(name: str) -> Device:
    """A device of that catalogue."""
    return catalogue().device(name)


def link(name: str) -> LinkSpeed:
    """A link of that catalogue."""
    return catalogue().link(name)
