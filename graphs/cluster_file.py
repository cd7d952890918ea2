"""A cluster on disk, `*.cluster.toml` (or `*.cluster.json`, with the same fields), as people write it.

    schema = "placelab.cluster"
    version = 1
    name = "two cards"

    [links]                 # between every two devices, unless `pairs` says otherwise
    latency = "10us"
    bandwidth = "12GB/s"
    channels = "per_source" # what leaves one device shares a channel; or "per_pair", the default

    [[devices]]
    name = "gpu:0"
    kind = "gpu"
    flops_per_second = "9.3TFLOP/s"
    bytes_per_second = "732GB/s"
    memory = "16GiB"
    launch = "5us"

    [[pairs]]
    source = "gpu:0"
    target = "gpu:1"
    bandwidth = "50GB/s"

Quantities are text with a unit, or plain numbers of FLOP/s, bytes/s, bytes and seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphs.by_name import unknown
from graphs.cluster import Cluster, Device
from graphs.documents import read_document
from graphs.errors import InputError
from graphs.op_graph import Bools, Floats, Ints
from graphs.quantities import parse, written

VERSION = 1
ENDINGS = (".toml", ".json")

Quantity = float | str
Value = TypeVar("Value", bound=np.generic)


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One device."""

    name: str
    kind: str
    flops_per_second: Quantity
    bytes_per_second: Quantity
    memory: Quantity
    launch: Quantity = 0.0


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What joins every two devices; a list gives one value per channel."""

    latency: Quantity = 0.0
    bandwidth: Quantity
    channels: Literal["per_source", "per_pair"] = "per_pair"
    gap: Quantity | list[Quantity] = 0.0
    multicast: bool | list[bool] = False


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What differs from `Links` from one device to another."""

    source: str
    target: str
    latency: Quantity | None = None
    bandwidth: Quantity | None = None
    channel: int | None = None


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a cluster file holds."""

    schema: Literal["placelab.cluster"]
    version: int
    name: str
    links: Links = Links(bandwidth=1.0)
    devices: list[DeviceEntry]
    pairs: list[Pair] = []


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a cluster, as TOML or JSON by the file's ending. Raises InputError for another ending."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path}: the name of a cluster file ends in {' or '.join(ENDINGS)}")
    content = _content(cluster)
    if path.suffix == ".toml":
        path.write_bytes(msgspec.toml.encode(content))
    else:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def load_cluster_file(path: Path) -> Cluster:
    """The cluster in a file.

    Raises InputError, naming the file and the place in it, if it is missing, damaged or of another version, if a
    quantity has no such unit, or a pair an unknown device.
    """
    remedy = "write one, or use a preset such as p100:devices=2"
    content = read_document(path, ClusterFile, version=VERSION, remedy=remedy)
    try:
        return _cluster(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def cluster_schema() -> dict[str, Any]:
    """The JSON schema of a cluster file, for editors and other programs."""
    return msgspec.json.schema(ClusterFile)


# ---- reading -----------------------------------------------------------------------------------------------


def _cluster(content: ClusterFile) -> Cluster:
    devices = tuple(_device(entry, f"devices[{i}]") for i, entry in enumerate(content.devices))
    index = {device.name: position for position, device in enumerate(devices)}
    links, pairs = content.links, (len(devices), len(devices))
    latency = np.full(pairs, _quantity(links.latency, "seconds", "links.latency"))
    bandwidth = np.full(pairs, _quantity(links.bandwidth, "bytes/s", "links.bandwidth"))
    channel = _channels(links.channels, len(devices))
    for i, pair in enumerate(content.pairs):
        for name in (pair.source, pair.target):
            if name not in index:
                raise InputError(f"pairs[{i}]: {unknown('device', name, index)}")
        at = index[pair.source], index[pair.target]
        if pair.latency is not None:
            latency[at] = _quantity(pair.latency, "seconds", f"pairs[{i}].latency")
        if pair.bandwidth is not None:
            bandwidth[at] = _quantity(pair.bandwidth, "bytes/s", f"pairs[{i}].bandwidth")
        if pair.channel is not None:
            channel[at] = pair.channel
    gap, multicast = _of_channels(links, channel)
    return Cluster(content.name, devices, latency, bandwidth, channel, gap, multicast)


def _device(entry: DeviceEntry, place: str) -> Device:
    return Device(
        entry.name,
        entry.kind,
        flops_per_second=_quantity(entry.flops_per_second, "FLOP/s", f"{place}.flops_per_second"),
        bytes_per_second=_quantity(entry.bytes_per_second, "bytes/s", f"{place}.bytes_per_second"),
        memory_bytes=_quantity(entry.memory, "bytes", f"{place}.memory"),
        launch_seconds=_quantity(entry.launch, "seconds", f"{place}.launch"),
    )


def _quantity(given: Quantity, unit: str, place: str) -> float:
    try:
        return parse(given, unit)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _channels(rule: str, count: int) -> Ints:
    """(devices, devices) channels as a rule numbers them."""
    source, target = np.indices((count, count))
    return np.array(source if rule == "per_source" else source * count + target, np.int64)


def _of_channels(links: Links, channel: Ints) -> tuple[Floats, Bools]:
    """Gap and multicast, (channels,)."""
    count = int(channel.max(initial=-1)) + 1
    gap = links.gap if isinstance(links.gap, list) else [links.gap] * count
    multicast = links.multicast if isinstance(links.multicast, list) else [links.multicast] * count
    seconds = [_quantity(value, "seconds", f"links.gap[{i}]") for i, value in enumerate(gap)]
    return np.array(seconds), np.array(multicast, np.bool_)


# ---- writing -----------------------------------------------------------------------------------------------


def _content(cluster: Cluster) -> ClusterFile:
    devices = [
        DeviceEntry(
            name=device.name,
            kind=device.kind,
            flops_per_second=written(device.flops_per_second, "FLOP/s"),
            bytes_per_second=written(device.bytes_per_second, "bytes/s"),
            memory=written(device.memory_bytes, "bytes"),
            launch=written(device.launch_seconds, "seconds"),
        )
        for device in cluster.devices
    ]
    links = _links(cluster)
    return ClusterFile(
        schema="placelab.cluster",
        version=VERSION,
        name=cluster.name,
        links=links,
        devices=devices,
        pairs=_pairs(cluster, links),
    )


def _links(cluster: Cluster) -> Links:
    """What most pairs have in common."""
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    by_source = _channels("per_source", len(cluster))
    rule: Literal["per_source", "per_pair"] = (
        "per_source" if (cluster.channel == by_source)[apart].all() else "per_pair"
    )
    gap = [written(value, "seconds") for value in cluster.gap.tolist()]
    multicast = cluster.multicast.tolist()
    usual = int(np.where(apart, cluster.channel, _channels(rule, len(cluster))).max(initial=-1)) + 1
    equal_gaps = len(set(gap)) <= 1 and len(gap) == usual
    equal_multicast = len(set(multicast)) <= 1 and len(multicast) == usual
    return Links(
        latency=written(_most_common(cluster.latency[apart], 0.0), "seconds"),
        bandwidth=written(_most_common(cluster.bandwidth[apart], 1.0), "bytes/s"),
        channels=rule,
        gap=gap[0] if equal_gaps and gap else gap,
        multicast=multicast[0] if equal_multicast and multicast else multicast,
    )


def _pairs(cluster: Cluster, links: Links) -> list[Pair]:
    """The pairs that differ from what most have in common."""
    latency, bandwidth = parse(links.latency, "seconds"), parse(links.bandwidth, "bytes/s")
    channel = _channels(links.channels, len(cluster))
    entries = []
    for source, target in np.argwhere(~np.eye(len(cluster), dtype=np.bool_)).tolist():
        at = source, target
        pair = Pair(
            source=cluster.devices[source].name,
            target=cluster.devices[target].name,
            latency=None if cluster.latency[at] == latency else written(float(cluster.latency[at]), "seconds"),
            bandwidth=None if cluster.bandwidth[at] == bandwidth else written(float(cluster.bandwidth[at]), "bytes/s"),
            channel=None if cluster.channel[at] == channel[at] else int(cluster.channel[at]),
        )
        if (pair.latency, pair.bandwidth, pair.channel) != (None, None, None):
            entries.append(pair)
    return entries


def _most_common(values: NDArray[Value], default: float) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()]) if len(distinct) else default
