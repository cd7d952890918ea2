"""Cluster: devices with speed and memory, and the channels between them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from graphs.foundation.errors import InputError, unknown
from graphs.host import Host
from graphs.op_graph import MOST, Bools, Floats, Ints
from graphs.op_graph.precision import PEAKS

GIB = 2.0**30
LEAST = 1 / MOST  # of a speed: the time of an op or a transfer is then still finite
FASTEST = 1e30  # of a finite speed: the sum of many is then still finite
FREE = -1  # in place of a channel: transfers between the two devices wait for nothing
MOST_DEVICES = 4096  # the matrices of more would fill the memory of a laptop
MAY_BE_INFINITE = ("memory_bytes", "collective_bytes_per_second")  # of a device
HOLDS = (  # of a device
    "launch_seconds", "runner_seconds", "message_seconds", "message_seconds_per_byte", "pass_seconds",
)  # fmt: skip
RESERVED = ("reserved_bytes", "fragmentation")  # of a device, too


def check_count(name: str, count: int) -> None:
    """Raise InputError for a number of devices that no cluster can have, before its matrices are allocated."""
    if count < 1:
        raise InputError(f"cluster {name!r} has no devices; a cluster needs at least one")
    if count > MOST_DEVICES:
        raise InputError(f"cluster {name!r} has {count} devices; at most {MOST_DEVICES} can be simulated")


@dataclass(frozen=True)
class Device:
    """One device. Raises InputError for a speed that is not positive and finite, or a negative or NaN quantity."""

    name: str
    kind: str  # "gpu" or "cpu"
    flops_per_second: float  # FLOP/s in single precision, of tensors and of products
    bytes_per_second: float  # of its own memory, bytes/s
    memory_bytes: float  # all of it; infinite where it does not matter
    launch_seconds: float = 0.0  # the device is held this long after each op that takes time
    runner_seconds: float = 0.0  # and so much longer by what runs a plan: no op time that was measured contains it
    message_seconds: float = 0.0  # the device is held this long for each message that it sends or receives,
    message_seconds_per_byte: float = 0.0  # and so much longer for each byte of the message
    pass_seconds: float = 0.0  # what runs pipelines makes each pass so much longer than its ops
    collective_bytes_per_second: float = np.inf  # what it sends in collectives at most, if its links do more
    reserved_bytes: float = 0.0  # of its memory that tensors cannot have: of drivers and libraries,
    fragmentation: float = 0.0  # and of what tensors take, the share that the allocator reserves beyond it
    flops_by_precision: dict[str, float] = field(default_factory=dict, hash=False, kw_only=True)  # "bf16": FLOP/s

    def __post_init__(self) -> None:
        for key, least, most in (
            ("flops_per_second", LEAST, FASTEST), ("bytes_per_second", LEAST, FASTEST), ("memory_bytes", 0, MOST),
            ("collective_bytes_per_second", LEAST, FASTEST), *((key, 0, MOST) for key in HOLDS + RESERVED),
        ):  # fmt: skip
            value = getattr(self, key)
            if not (least <= value <= most or (key in MAY_BE_INFINITE and value == np.inf)):
                expected = f"a number > 0, from {least:g} to {most:g}" if least else f"a number >= 0, to {most:g}"
                raise InputError(f"device {self.name!r}: {key} is {value}; expected {expected}")
            object.__setattr__(self, key, float(value) + 0.0)  # so that equal devices print alike
        for precision, peak in self.flops_by_precision.items():
            if precision not in PEAKS:
                raise InputError(f"device {self.name!r}: {unknown('precision', precision, PEAKS)}")
            if not LEAST <= peak <= FASTEST:
                expected = f"a number > 0, from {LEAST:g} to {FASTEST:g}"
                raise InputError(f"device {self.name!r}: its FLOP/s in {precision} are {peak}; expected {expected}")

    def __repr__(self) -> str:
        """Fingerprints are made of it: what most devices do not have is left out, so that it may be added to.

        Peaks in other precisions are, too, since they have no part in plans of graphs in single precision.
        """
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "flops_by_precision"}
        unsaid = dict.fromkeys(HOLDS[1:] + RESERVED, 0.0) | {"collective_bytes_per_second": np.inf}
        shown = (f"{key}={value!r}" for key, value in given.items() if value != unsaid.get(key))
        return f"Device({', '.join(shown)})"

    @property
    def usable_bytes(self) -> float:
        """Of its memory, what tensors may take."""
        return max(self.memory_bytes - self.reserved_bytes, 0.0) / (1 + self.fragmentation)

    def peak(self, precision: str) -> float:
        """FLOP/s of products in a precision; those in single precision where no others are known."""
        return self.flops_by_precision.get(precision, self.flops_per_second)

    def faster(self, times: float) -> Device:
        """The same device, but that it computes, and reads its own memory, that many times as fast."""
        return replace(
            self,
            flops_per_second=self.flops_per_second * times,
            bytes_per_second=self.bytes_per_second * times,
            flops_by_precision={key: peak * times for key, peak in self.flops_by_precision.items()},
        )


@dataclass(frozen=True, eq=False)
class Cluster:
    """Devices and the serial channels that join each ordered pair of them; the diagonals are not read.

    A pair whose `channel` equals that of another pair shares one channel with it (a bus, a network card). A pair whose
    channel is `FREE` has a link without contention, as in the model of list scheduling (Topcuoglu et al. 2002): it
    carries any number of transfers at once, each as fast as if it were alone.
    Raises InputError, naming the device or the pair, for a value that makes no sense.
    """

    name: str
    devices: tuple[Device, ...]
    latency: Floats  # (devices, devices) seconds
    bandwidth: Floats  # (devices, devices) bytes/s
    channel: Ints  # (devices, devices) channel that carries source -> destination, or FREE
    gap: Floats = field(default_factory=lambda: np.zeros(0))  # (channels,) seconds held after each transfer
    multicast: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))  # (channels,) one transfer serves all
    hosts: Mapping[str, Host] = field(default_factory=dict)  # by name, measured on its machines

    def __post_init__(self) -> None:
        count = len(self.devices)
        check_count(self.name, count)
        names = [device.name for device in self.devices]
        if len(set(names)) < count:
            raise InputError(f"cluster {self.name!r}: device names must be unique, got {', '.join(names)}")
        for key in ("latency", "bandwidth", "channel"):
            matrix = np.array(getattr(self, key), dtype=np.int64 if key == "channel" else np.float64)
            if matrix.shape != (count, count):
                raise InputError(f"cluster {self.name!r}: {key} has shape {matrix.shape}, expected {(count, count)}")
            matrix.flags.writeable = False
            object.__setattr__(self, key, matrix)
        self._check_pairs()
        self._fill_channels()
        if not ((self.gap >= 0) & (self.gap <= MOST)).all():
            raise InputError(f"cluster {self.name!r}: gap must be >= 0 on every channel, got {self.gap.tolist()}")

    def _fill_channels(self) -> None:
        """Gap and multicast of every channel; those that no pair uses may be left out."""
        used = int(self.channel[self._pairs].max(initial=-1)) + 1
        channels = max(used, np.size(self.gap), np.size(self.multicast))
        for key, kind in (("gap", np.float64), ("multicast", np.bool_)):
            given = np.array(getattr(self, key), dtype=kind)
            if given.ndim != 1 or 0 < len(given) < used:
                expected = f"one entry for each of {used} channels"
                raise InputError(f"cluster {self.name!r}: {key} has shape {given.shape}, expected {expected}")
            values = np.concatenate([given, np.zeros(channels - len(given), kind)])
            values.flags.writeable = False
            object.__setattr__(self, key, values)

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"Cluster({self.name!r}, {len(self)} devices)"

    @property
    def _pairs(self) -> Bools:
        return ~np.eye(len(self.devices), dtype=np.bool_)

    def _check_pairs(self) -> None:
        most = max(len(self.devices) ** 2, np.size(self.gap), np.size(self.multicast))  # more would be a slip
        is_speed = (self.bandwidth >= LEAST) & ((self.bandwidth <= FASTEST) | np.isinf(self.bandwidth))
        for key, good, expected in (
            ("latency", (self.latency >= 0) & (self.latency <= MOST), f"seconds >= 0, to {MOST:g}"),
            ("bandwidth", is_speed, f"bytes/s > 0, from {LEAST:g} to {FASTEST:g}, or infinite"),
            ("channel", (self.channel >= FREE) & (self.channel < most), f"a number from 0 to {most - 1}, or {FREE}"),
        ):
            bad = np.argwhere(self._pairs & ~good)
            if len(bad):
                source, target = (self.devices[i].name for i in bad[0])
                where = f"cluster {self.name!r}: {key} from {source!r} to {target!r}"
                raise InputError(f"{where} is {getattr(self, key)[tuple(bad[0])]}; expected {expected}")

    @property
    def is_cpu(self) -> Bools:
        """(devices,) whether each is a CPU."""
        return np.array([device.kind == "cpu" for device in self.devices], np.bool_)

    @cached_property
    def nearest_cpu(self) -> Ints:
        """(devices,) the CPU with which each exchanges data fastest: itself if it is one, and -1 if there is none."""
        cpus = np.flatnonzero(self.is_cpu)
        if not len(cpus):
            return np.full(len(self), -1)
        is_other = np.arange(len(self))[:, None] != cpus
        bandwidth = np.where(self._pairs, self.bandwidth, np.inf)  # the diagonal says nothing
        pace = 1 / bandwidth[:, cpus] + 1 / bandwidth[cpus].T
        return cpus[np.lexsort((self.latency[:, cpus], pace, is_other))[:, 0]]

    @property
    def memory_bytes(self) -> Floats:
        """(devices,) bytes that tensors may take."""
        return np.array([device.usable_bytes for device in self.devices])

    @property
    def unreserved(self) -> Cluster:
        """The same devices with all of their memory for tensors."""
        if not any(device.reserved_bytes or device.fragmentation for device in self.devices):
            return self
        return self.with_each_device(reserved_bytes=0.0, fragmentation=0.0)

    @property
    def hold_seconds(self) -> Floats:
        """(devices,) seconds for which each is held after an op that takes time: by the launch and by the runner."""
        return np.array([device.launch_seconds + device.runner_seconds for device in self.devices])

    @property
    def runner_seconds(self) -> Floats:
        """(devices,) the part of these that what runs a plan adds."""
        return np.array([device.runner_seconds for device in self.devices])

    @property
    def message_seconds(self) -> Floats:
        """(devices,) seconds for which each is held for a message that it sends or receives, whatever its size."""
        return np.array([device.message_seconds for device in self.devices])

    @property
    def message_seconds_per_byte(self) -> Floats:
        """(devices,) seconds for which each is held for a byte of a message."""
        return np.array([device.message_seconds_per_byte for device in self.devices])

    @property
    def pass_seconds(self) -> Floats:
        """(devices,) seconds by which each pass of a pipeline takes longer than its ops."""
        return np.array([device.pass_seconds for device in self.devices])

    @property
    def is_free(self) -> Bools:
        """(devices, devices) whether the link of each pair of devices is without contention."""
        free: Bools = self._pairs & (self.channel == FREE)
        return free

    @property
    def links(self) -> Ints:
        """(devices, devices) channel of each pair; a free pair has a number of its own, after those of the channels."""
        numbers = len(self.gap) + np.arange(len(self) ** 2).reshape(self.channel.shape)
        return np.where(self.is_free, numbers, self.channel)

    def with_each_device(self, **values: float) -> Cluster:
        """The same links, and on each device these values, by the fields of `Device`."""
        changed = tuple(replace(device, **values) for device in self.devices)  # type: ignore[arg-type]  # numbers only
        return replace(self, devices=changed)

    def with_free_links(self) -> Cluster:
        """The same devices and links, but no transfer waits for another one."""
        channel = np.full(self.channel.shape, FREE)
        name, gap, multicast = f"{self.name}, free links", np.zeros(0), np.zeros(0, np.bool_)
        return replace(self, name=name, channel=channel, gap=gap, multicast=multicast)

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change with any device or link: plans carry it.

        The cluster's name, the numbers of its channels and what no pair uses do not matter.
        """
        digest = hashlib.sha256(repr(self.devices).encode())
        pairs = self._pairs
        used, first, channel = np.unique(self.channel[pairs], return_index=True, return_inverse=True)
        order = np.argsort(first)  # channels by the first pair that they carry: their numbers mean nothing
        serial = used[order][used[order] != FREE]
        for values in (
            self.latency[pairs], self.bandwidth[pairs], np.argsort(order)[channel], self.gap[serial],
            self.multicast[serial],
        ):  # fmt: skip
            digest.update((values + 0 if values.dtype == np.float64 else values).tobytes())  # -0.0 is 0.0
        if self.is_free.any():
            digest.update(b"free" + self.is_free[pairs].tobytes())
        if self.hosts:
            digest.update(repr(sorted(self.hosts.items())).encode())
        return digest.hexdigest()[:16]

    @classmethod
    def uniform(
        cls, name: str, device: Device, count: int, *, latency: float, bandwidth: float, shared_out: bool,
        gap: float = 0.0, multicast: bool = False,
    ) -> Cluster:  # fmt: skip
        """`count` equal devices ("gpu:0", ...) with equal links.

        With `shared_out` the transfers leaving one device share a serial channel (its PCIe lanes); otherwise
        every ordered pair has a channel of its own (NVLink, fully connected).
        """
        check_count(name, count)
        devices = tuple(replace(device, name=f"{device.kind}:{i}") for i in range(count))
        source, target = np.indices((count, count))
        channel, channels = (source, count) if shared_out else (source * count + target, count * count)
        return cls(
            name, devices, np.full((count, count), latency), np.full((count, count), bandwidth), channel,
            np.full(channels, gap), np.full(channels, multicast),
        )  # fmt: skip
