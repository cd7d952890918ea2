"""A cluster on disk, `*.cluster.toml` (or `*.cluster.json`, with the same fields), as people write it.

    schema = "placelab.cluster"
    version = 1
    name = "two cards"

    [links]                 # between every two devices, unless `pairs` says otherwise
    latency = "10us"
    bandwidth = "12GB/s"
    channels = "per_source" # what leaves one device shares a channel; or "per_pair", the default; or "free": transfers
                            # wait for nothing, as in the model of list scheduling

    [[devices]]
    name = "gpu:0"
    kind = "gpu"
    flops_per_second = "9.3TFLOP/s"
    bytes_per_second = "732GB/s"
    memory = "16GiB"
    launch = "5us"

    [[pairs]]               # one direction
    source = "gpu:0"
    target = "gpu:1"
    bandwidth = "50GB/s"
    channel = "free"        # or the number of a channel

    [[levels]]              # copies of all the above side by side, from the outermost level to the innermost
    count = 2
    latency = "25us"
    bandwidth = "25Gbit/s"
    shared = "group"        # each copy sends through one network card; or "device", "pair", or "free"

Quantities are text with a unit, or plain numbers of FLOP/s, bytes/s, bytes and seconds; a bandwidth or a memory may be
infinite, "inf". `msgspec.json.schema(ClusterFile)` is the format as a JSON schema, for editors and other programs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from graphs.cluster import FREE, Cluster, Device, check_count
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document, write_document
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from graphs.foundation.quantities import parse, written
from graphs.op_graph import Bools, Floats, Ints
from graphs.topology import Level, Shared, joined

VERSION = 1
ENDINGS = (".toml", ".json")

INFINITE = "inf"
_QUANTITIES = (  # of a device: the file's key, the field of `Device`, the unit
    ("flops_per_second", "flops_per_second", "FLOP/s"), ("bytes_per_second", "bytes_per_second", "bytes/s"),
    ("memory", "memory_bytes", "bytes"), ("launch", "launch_seconds", "seconds"),
)  # fmt: skip

Rule = Literal["per_source", "per_pair", "free"]


def _said(description: str, *examples: float | str) -> msgspec.Meta:
    return msgspec.Meta(description=description, examples=list(examples))


Flops = Annotated[float | str, _said("FLOP/s > 0", "9.3TFLOP/s", 9.3e12)]
Speed = Annotated[float | str, _said("bytes/s > 0", "732GB/s", "25Gbit/s", 7.32e11, INFINITE)]
Size = Annotated[float | str, _said("bytes >= 0", "16GiB", "16GB", 1.6e10, INFINITE)]
Time = Annotated[float | str, _said("seconds >= 0", "10us", 1e-5)]


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One device."""

    name: str
    kind: Annotated[str, _said("what sort of device it is", "gpu", "cpu")]
    flops_per_second: Flops
    bytes_per_second: Speed
    memory: Size
    launch: Time = 0.0


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What joins every two devices; a list gives one value per channel."""

    latency: Time = 0.0
    bandwidth: Speed | None = None
    channels: Rule = "per_pair"
    gap: Time | list[Time] = 0.0
    multicast: bool | list[bool] = False


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What differs from `Links` from one device to another."""

    source: str
    target: str
    latency: Time | None = None
    bandwidth: Speed | None = None
    channel: Annotated[int, msgspec.Meta(ge=0)] | Literal["free"] | None = None


class LevelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Copies of a group of devices, and what joins them."""

    count: Annotated[int, msgspec.Meta(ge=1)]
    latency: Time = 0.0
    bandwidth: Speed
    shared: Shared


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a cluster file holds."""

    schema: Literal["placelab.cluster"]
    version: int
    name: str
    links: Links = Links()
    devices: list[DeviceEntry]
    pairs: list[Pair] = []
    levels: list[LevelEntry] = []


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a cluster, as TOML or JSON by the file's ending, so that it is read back exactly.

    Raises InputError for another ending.
    """
    if path.suffix not in ENDINGS:
        raise InputError(f"{path}: the name of a cluster file ends in {' or '.join(ENDINGS)}")
    content = _content(cluster)
    if path.suffix == ".toml":
        write_whole(path, msgspec.toml.encode(content))
    else:
        write_document(content, path)


def load_cluster_file(path: Path) -> Cluster:
    """The cluster in a file.

    Raises InputError, naming the file and the place in it, if it is missing, damaged or of another version, if a
    quantity has no such unit, or a pair an unknown device.
    """
    remedy = "write one, or use a preset such as p100:devices=2"
    content = read_document(path, ClusterFile, version=VERSION, remedy=remedy)
    with located(path):
        return _cluster(content)


# ---- reading -----------------------------------------------------------------------------------------------


def _cluster(content: ClusterFile) -> Cluster:
    cluster = _group(content)
    for i, entry in reversed(list(enumerate(content.levels))):
        bandwidth = _quantity(entry.bandwidth, "bytes/s", f"levels[{i}].bandwidth")
        latency = _quantity(entry.latency, "seconds", f"levels[{i}].latency")
        cluster = joined(content.name, cluster, Level(entry.count, bandwidth, latency, entry.shared))
    return cluster


def _group(content: ClusterFile) -> Cluster:
    """The devices that are listed, without the levels."""
    check_count(content.name, len(content.devices))
    devices = tuple(_device(entry, f"devices[{i}]") for i, entry in enumerate(content.devices))
    links, pairs = content.links, (len(devices), len(devices))
    bandwidth = np.nan if links.bandwidth is None else _quantity(links.bandwidth, "bytes/s", "links.bandwidth")
    bandwidths = np.full(pairs, bandwidth)
    latencies = np.full(pairs, _quantity(links.latency, "seconds", "links.latency"))
    channel = _channels(links.channels, len(devices))
    most = max(len(devices) ** 2, *(len(given) for given in (links.gap, links.multicast) if isinstance(given, list)), 1)
    for i, (at, pair) in enumerate(_by_index(content.pairs, devices).items()):
        if pair.latency is not None:
            latencies[at] = _quantity(pair.latency, "seconds", f"pairs[{i}].latency")
        if pair.bandwidth is not None:
            bandwidths[at] = _quantity(pair.bandwidth, "bytes/s", f"pairs[{i}].bandwidth")
        if pair.channel == "free":
            channel[at] = FREE
        elif pair.channel is not None:
            if pair.channel >= most:
                raise InputError(f"pairs[{i}].channel: expected a number from 0 to {most - 1}, got {pair.channel}")
            channel[at] = pair.channel
    missing = np.argwhere(np.isnan(bandwidths) & ~np.eye(len(devices), dtype=np.bool_))
    if len(missing):
        source, target = (devices[index].name for index in missing[0])
        raise InputError(f"links.bandwidth is missing, and no pair gives the bandwidth from {source!r} to {target!r}")
    gap, multicast = _of_channels(links, int(channel.max(initial=FREE)) + 1)
    return Cluster(content.name, devices, latencies, bandwidths, channel, gap, multicast)


def _by_index(pairs: list[Pair], devices: tuple[Device, ...]) -> dict[tuple[int, int], Pair]:
    """The pairs by the indices of their devices, in the order of the file."""
    index = {device.name: position for position, device in enumerate(devices)}
    found: dict[tuple[int, int], Pair] = {}
    for i, pair in enumerate(pairs):
        for name in (pair.source, pair.target):
            if name not in index:
                raise InputError(f"pairs[{i}]: {unknown('device', name, index)}")
        at = index[pair.source], index[pair.target]
        if at[0] == at[1]:
            raise InputError(f"pairs[{i}]: source and target are the same device, {pair.source!r}; remove the pair")
        if at in found:
            raise InputError(f"pairs[{i}]: {pair.source!r} to {pair.target!r} is given twice; keep one of the two")
        found[at] = pair
    return found


def _device(entry: DeviceEntry, place: str) -> Device:
    quantities = {name: _quantity(getattr(entry, key), unit, f"{place}.{key}") for key, name, unit in _QUANTITIES}
    return Device(entry.name, entry.kind, **quantities)


def _quantity(given: float | str, unit: str, place: str) -> float:
    """The number of a unit: rates are positive, sizes and times are not negative."""
    with located(place):
        value = math.inf if given == INFINITE else parse(given, unit)
    rate = unit in ("bytes/s", "FLOP/s")
    if not (value > 0 if rate else value >= 0):
        raise InputError(f"{place}: expected a number of {unit} {'> 0' if rate else '>= 0'}, got {given}")
    return value


def _channels(rule: Rule, count: int) -> Ints:
    """(devices, devices) channels as a rule numbers them."""
    if rule == "free":
        return np.full((count, count), FREE)
    source, target = np.indices((count, count))
    return np.array(source if rule == "per_source" else source * count + target, np.int64)


def _of_channels(links: Links, count: int) -> tuple[Floats, Bools]:
    """Gap and multicast, (channels,). Raises InputError for either where all links are free."""
    for key, given in (("gap", links.gap), ("multicast", links.multicast)):
        if given and not count:
            raise InputError(f"links.{key}: free links have none; remove it, or give pairs a channel")
    if isinstance(links.gap, list):
        gap = np.array([_quantity(value, "seconds", f"links.gap[{i}]") for i, value in enumerate(links.gap)])
    else:
        gap = np.full(count, _quantity(links.gap, "seconds", "links.gap"))
    given = links.multicast
    return gap, np.array(given, np.bool_) if isinstance(given, list) else np.full(count, given)


# ---- writing -----------------------------------------------------------------------------------------------


def _content(cluster: Cluster) -> ClusterFile:
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    latency, bandwidth = _most_common(cluster.latency[apart]), _most_common(cluster.bandwidth[apart])
    rule: Rule = "per_pair"
    if (cluster.channel == _channels("per_source", len(cluster)))[apart].all():
        rule = "per_source"
    elif (cluster.channel == FREE)[apart].all():
        rule = "free"
    return ClusterFile(
        schema="placelab.cluster",
        version=VERSION,
        name=cluster.name,
        links=_links(cluster, rule, latency, bandwidth),
        devices=[_entry(device) for device in cluster.devices],
        pairs=_pairs(cluster, rule, latency, bandwidth),
    )


def _entry(device: Device) -> DeviceEntry:
    quantities = {key: _text(getattr(device, name), unit) for key, name, unit in _QUANTITIES}
    return DeviceEntry(name=device.name, kind=device.kind, **quantities)


def _links(cluster: Cluster, rule: Rule, latency: float, bandwidth: float) -> Links:
    """What most pairs have in common."""
    gap, multicast = cluster.gap.tolist(), cluster.multicast.tolist()
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    if rule == "free":
        return Links(latency=_text(latency, "seconds"), bandwidth=_text(bandwidth, "bytes/s"), channels=rule)
    usual = int(np.where(apart, cluster.channel, _channels(rule, len(cluster))).max(initial=FREE)) + 1
    texts = [_text(value, "seconds") for value in gap]
    return Links(
        latency=_text(latency, "seconds"),
        bandwidth=_text(bandwidth, "bytes/s") if len(cluster) > 1 else None,
        channels=rule,
        gap=texts[0] if len(set(gap)) == 1 and len(gap) == usual else texts,
        multicast=multicast[0] if len(set(multicast)) == 1 and len(multicast) == usual else multicast,
    )


def _pairs(cluster: Cluster, rule: Rule, latency: float, bandwidth: float) -> list[Pair]:
    """The pairs that differ from what most have in common."""
    channel = _channels(rule, len(cluster))
    is_free = cluster.channel == FREE
    other = (cluster.latency != latency) | (cluster.bandwidth != bandwidth) | (cluster.channel != channel)
    return [
        Pair(
            source=cluster.devices[at[0]].name,
            target=cluster.devices[at[1]].name,
            latency=None if cluster.latency[at] == latency else _text(float(cluster.latency[at]), "seconds"),
            bandwidth=None if cluster.bandwidth[at] == bandwidth else _text(float(cluster.bandwidth[at]), "bytes/s"),
            channel=None if cluster.channel[at] == channel[at] else "free" if is_free[at] else int(cluster.channel[at]),
        )
        for at in map(tuple, np.argwhere(other & ~np.eye(len(cluster), dtype=np.bool_)).tolist())
    ]


def _text(value: float, unit: str) -> float | str:
    return INFINITE if math.isinf(value) else written(value, unit)  # JSON has no number for it


def _most_common(values: Floats) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()]) if len(distinct) else 0.0
