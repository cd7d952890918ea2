"""A cluster on disk, `*.cluster.toml` (or `*.cluster.json`, with the same fields), as people write it.

Servers with devices and links of the catalogue (`graphs.devices.catalogue`, which also says how a file adds its own),
joined by a network (`graphs.devices.servers`):

    [[servers]]
    devices = ["rtx3090@pcie4x16", "rtx3060"] # on 16 lanes of their own; on what the server says
    link = "pcie3x4"

    [[servers]]
    devices = ["a100-80gbx2"]                 # two of them
    link = "nvlink3"
    count = 2                                 # two such servers

    [[servers]]
    devices = ["titan-rtxx8"]
    link = "pcie3x16"
    root = "pcie3x16"                         # all that goes through the host's memory shares a link, the PCIe root, or
    roots = 2                                 # half of the devices does; if it is left out, no device waits for another

    [network]
    link = "10gbe"                            # a server may have a slower or faster one: network = "1gbe"
    cards = "server"                          # one network card for each server, the default, or for each "device"

Or every number, as all clusters are written:

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
    flops_by_precision = { fp16 = "18.7TFLOP/s" } # if it is left out, as fast as in single precision, with a warning
    bytes_per_second = "732GB/s"
    memory = "16GiB"
    launch = "5us"
    runner = "100us"            # what runs a plan adds to each op; 0 if it is left out, as are the next three
    message = "80us"            # of the device for each message that it sends or receives,
    message_per_byte = "0.5ns"  # and for each byte of it
    per_pass = "1ms"            # what runs pipelines adds to each pass
    collectives = "235GB/s"     # what it sends at most in all-reduces of kind `nccl`; as its links do if it is left out
    reserved = "1.5GiB"         # of its memory that tensors cannot have, of drivers and libraries; 0 if it is left out,
    fragmentation = 0.08        # and the share of what tensors take that the allocator reserves beyond it; likewise

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

    [hosts.eager]           # what a host of `graphs.host` takes on this machine to issue an op
    forward = "44us"        # of the forward pass,
    backward = "54us"       # of the backward pass,
    update = "5us"          # the update of a weight,
    collective = "30us"     # and a collective. What is left out is as elsewhere

Quantities are text with a unit, or plain numbers of FLOP/s, bytes/s, bytes and seconds, but none that must have lost
its unit (`graphs.devices.forgotten_units`); a bandwidth or a memory may be infinite, "inf".
`msgspec.json.schema(ClusterFile)` is the format as a JSON schema, for editors and other programs.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from graphs.cluster import FREE, HOLDS, MOST_DEVICES, RESERVED, Cluster, Device, check_count
from graphs.devices.catalogue import QUANTITIES, Catalogue, catalogue, device_of
from graphs.devices.forgotten_units import check_units
from graphs.devices.servers import Cards, Server, cluster_of_servers
from graphs.devices.topology import Level, Shared, joined
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document, write_document
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from graphs.foundation.quantities import INFINITE, Flops, Size, Speed, Time, quantity, said, written
from graphs.host import HostEntry
from graphs.op_graph import Bools, Floats, Ints

VERSION = 1
ENDINGS = (".toml", ".json")

Rule = Literal["per_source", "per_pair", "free"]


class DeviceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One device."""

    name: str
    kind: Annotated[str, said("what sort of device it is", "gpu", "cpu")]
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


class LinkSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What joins every two devices; a list gives one value per channel."""

    latency: Time = 0.0
    bandwidth: Speed | None = None
    channels: Rule = "per_pair"
    gap: Time | list[Time] = 0.0
    multicast: bool | list[bool] = False


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What differs from `LinkSection` from one device to another."""

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


_DEVICES = said("names of the catalogue", "rtx3090", "rtx3090x2", "rtx3060@pcie3x4")


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A server, or several alike."""

    devices: Annotated[list[Annotated[str, _DEVICES]], msgspec.Meta(min_length=1)]
    link: str = ""
    network: str = ""
    root: str = ""
    roots: Annotated[int, msgspec.Meta(ge=1)] = 1
    count: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)] = 1


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What joins servers."""

    link: str
    cards: Cards = "server"


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a cluster file holds."""

    schema: Literal["placelab.cluster", None] = None  # these two may be left out of a file that people write
    version: int | None = None
    name: str | None = None  # the file's name without its ending
    links: LinkSection = LinkSection()
    devices: list[DeviceEntry] = []
    pairs: list[Pair] = []
    levels: list[LevelEntry] = []
    servers: list[ServerEntry] = []
    network: Network | None = None
    hosts: dict[str, HostEntry] = {}
    catalogue: Catalogue = Catalogue()


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
        name = path.stem.removesuffix(".cluster") if content.name is None else content.name
        cluster = _of_servers(content, name) if content.servers else _cluster(content, name)
        hosts = {host: entry.host(host) for host, entry in content.hosts.items()}
        check_units(msgspec.to_builtins(content), is_real=bool(content.servers))
    return replace(cluster, hosts=hosts)


# ---- reading -----------------------------------------------------------------------------------------------


def _of_servers(content: ClusterFile, name: str) -> Cluster:
    for key in ("links", "devices", "pairs", "levels"):
        if getattr(content, key) != getattr(ClusterFile(), key):
            raise InputError(f"{key}: this file lists servers, whose devices and links are named there; keep one")
    known, network = catalogue().extended(content.catalogue), content.network
    servers = list[Server]()
    for i, entry in enumerate(content.servers):
        with located(f"servers[{i}]"):
            joined = entry.network or (network.link if network else "")
            servers += [Server.of(known, entry.devices, entry.link, joined, entry.root, entry.roots)] * entry.count
    return cluster_of_servers(name, servers, network.cards if network else "server")


def _cluster(content: ClusterFile, name: str) -> Cluster:
    for key in ("network", "catalogue"):
        if getattr(content, key) != getattr(ClusterFile(), key):
            raise InputError(f"{key}: only servers use it, and this file lists none; add [[servers]], or remove it")
    cluster = _group(content, name)
    for i, entry in reversed(list(enumerate(content.levels))):
        bandwidth = quantity(entry.bandwidth, "bytes/s", f"levels[{i}].bandwidth")
        latency = quantity(entry.latency, "seconds", f"levels[{i}].latency")
        cluster = joined(name, cluster, Level(entry.count, bandwidth, latency, entry.shared))
    return cluster


def _group(content: ClusterFile, name: str) -> Cluster:
    """The devices that are listed, without the levels."""
    check_count(name, len(content.devices))
    devices = tuple(device_of(entry, entry.name, f"devices[{i}]") for i, entry in enumerate(content.devices))
    links, pairs = content.links, (len(devices), len(devices))
    bandwidth = np.nan if links.bandwidth is None else quantity(links.bandwidth, "bytes/s", "links.bandwidth")
    bandwidths = np.full(pairs, bandwidth)
    latencies = np.full(pairs, quantity(links.latency, "seconds", "links.latency"))
    channel = _channels(links.channels, len(devices))
    most = max(len(devices) ** 2, *(len(given) for given in (links.gap, links.multicast) if isinstance(given, list)), 1)
    for i, (at, pair) in enumerate(_by_index(content.pairs, devices).items()):
        if pair.latency is not None:
            latencies[at] = quantity(pair.latency, "seconds", f"pairs[{i}].latency")
        if pair.bandwidth is not None:
            bandwidths[at] = quantity(pair.bandwidth, "bytes/s", f"pairs[{i}].bandwidth")
        if pair.channel == "free":
            channel[at] = FREE
        elif pair.channel is not None:
            if pair.channel >= most:
                raise InputError(f"pairs[{i}].channel: expected a number from 0 to {most - 1}, got {pair.channel}")
            channel[at] = pair.channel
    missing = np.argwhere(np.isnan(bandwidths) & ~np.eye(len(devices), dtype=np.bool_))
    if len(missing):
        source, target = (devices[index].name for index in missing[0])
        raise InputError(
            f"links.bandwidth is missing, and no pair gives the bandwidth from {source!r} to {target!r}; give one of "
            "them"
        )
    gap, multicast = _of_channels(links, int(channel.max(initial=FREE)) + 1)
    return Cluster(name, devices, latencies, bandwidths, channel, gap, multicast)


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


def _channels(rule: Rule, count: int) -> Ints:
    """(devices, devices) channels as a rule numbers them."""
    if rule == "free":
        return np.full((count, count), FREE)
    source, target = np.indices((count, count))
    return np.array(source if rule == "per_source" else source * count + target, np.int64)


def _of_channels(links: LinkSection, count: int) -> tuple[Floats, Bools]:
    """Gap and multicast, (channels,). Raises InputError for either where all links are free."""
    for key, given in (("gap", links.gap), ("multicast", links.multicast)):
        if given and not count:
            raise InputError(f"links.{key}: free links have none; remove it, or give pairs a channel")
    if isinstance(links.gap, list):
        gap = np.array([quantity(value, "seconds", f"links.gap[{i}]") for i, value in enumerate(links.gap)])
    else:
        gap = np.full(count, quantity(links.gap, "seconds", "links.gap"))
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
        hosts={name: HostEntry.of(host) for name, host in cluster.hosts.items()},
    )


def _entry(device: Device) -> DeviceEntry:
    unsaid = dict.fromkeys((*HOLDS, *RESERVED), 0.0) | {"collective_bytes_per_second": math.inf}
    given = [each for each in QUANTITIES if getattr(device, each[1]) != unsaid.get(each[1])]
    quantities: dict[str, Any] = {key: _text(getattr(device, name), unit) for key, name, unit in given}
    if device.fragmentation:  # a value that equals its default is left out only if it is the same object
        quantities["fragmentation"] = device.fragmentation
    peaks = {key: _text(peak, "FLOP/s") for key, peak in device.flops_by_precision.items()}
    return DeviceEntry(name=device.name, kind=device.kind, **quantities, flops_by_precision=peaks)


def _links(cluster: Cluster, rule: Rule, latency: float, bandwidth: float) -> LinkSection:
    """What most pairs have in common."""
    gap, multicast = cluster.gap.tolist(), cluster.multicast.tolist()
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    if rule == "free":
        return LinkSection(latency=_text(latency, "seconds"), bandwidth=_text(bandwidth, "bytes/s"), channels=rule)
    usual = int(np.where(apart, cluster.channel, _channels(rule, len(cluster))).max(initial=FREE)) + 1
    texts = [_text(value, "seconds") for value in gap]
    return LinkSection(
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
