"""A profile: how long the ops of models took on one machine, `*.profile.json` or `*.profile.json.gz`.

Each distinct op is there once, with its time and the ops of each profiled graph that are like it. Of a GPU there also
is, by graph, what the host takes to issue the ops of its step.
"""

import gzip
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from envs.costs.op_times import OpCost, is_free, op_costs
from graphs.cluster import Device
from graphs.foundation.documents import read_document
from graphs.foundation.files import write_whole
from graphs.host import SECONDS, Host, HostEntry
from graphs.op_graph import Floats, OpGraph

VERSION = 1
ENDINGS = (".profile.json", ".profile.json.gz")
HOST = "eager"  # in `graphs.host.HOSTS`: PyTorch without compilation
REMEDY = "`placelab profile MODEL --out FILE` writes one"

Positive = Annotated[float, msgspec.Meta(gt=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class ProfiledMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The device on which ops were run, and what it reached at best."""

    name: str  # of the processor or GPU
    kind: Literal["cpu", "gpu"]
    torch: str  # version
    threads: int  # of a processor
    flops_per_second: Positive  # of a large square product in single precision
    flops_by_precision: dict[str, Positive] = {}  # of the same in others, "bf16"; of a GPU
    bytes_per_second: Positive  # of a large copy, read and written
    memory_bytes: Positive
    launch_seconds: Positive  # of an op on one number: to launch it, or what a GPU takes for it when the host is ahead
    autograd_seconds: Amount  # of starting autograd, once per pass; left out of the times of backward ops
    settings: tuple[str, ...] = ()  # of PyTorch that choose a GPU's kernels and are on, such as "TF32 in products"

    def described(self) -> str:
        """In words, without the speeds, which never agree exactly when they are measured again."""
        threads = [] if self.kind == "gpu" else ["one thread" if self.threads == 1 else f"{self.threads} threads"]
        return f"{self.name} ({', '.join((self.kind, *threads, f'torch {self.torch}', *self.settings))})"

    def device(self) -> Device:
        """As a device of a cluster."""
        return Device(
            f"{self.kind}:0", self.kind, self.flops_per_second, self.bytes_per_second, self.memory_bytes,
            self.launch_seconds, flops_by_precision=self.flops_by_precision,
        )  # fmt: skip


class MeasuredOp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One distinct op: the same ATen operation with the same attributes on tensors of the same shapes and types."""

    kind: str
    signature: str
    flops: Amount
    bytes_accessed: Amount
    seconds: Positive  # from one start to the next: launch included
    spread: Amount  # interquartile range over the median, as sampled
    repeats: int
    how: Literal["measured", "scaled", "in_step"] = "measured"
    """Alone; from its forward op, where autograd has no rule for it; or on average in a step of the whole model."""
    ops: dict[str, list[str]]  # graph -> its ops that are like this one

    @property
    def cost(self) -> OpCost:
        """What a graph says of it."""
        return OpCost(self.kind, self.flops, self.bytes_accessed)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a profile file holds."""

    schema: Literal["placelab.profile"] = "placelab.profile"
    version: int = VERSION
    date: str  # of the last measurement, ISO 8601
    machine: ProfiledMachine
    ops: list[MeasuredOp]
    refused: dict[str, str] = {}  # signature -> why PyTorch could not run it alone
    hosts: dict[str, HostEntry] = {}  # graph -> what the host named `HOST` takes to issue its step

    @property
    def is_of_steps(self) -> bool:
        """Whether its ops were timed in steps of whole models, and not alone."""
        return any(op.how == "in_step" for op in self.ops)

    def host(self, graph: str) -> Host | None:
        """What issues a graph's ops: as measured in its own step or else, in the median, in those of the others.

        None if none was measured.
        """
        measured = [self.hosts[graph]] if graph in self.hosts else list(self.hosts.values())
        if not measured:
            return None
        hosts = [each.host(HOST) for each in measured]
        return hosts[0].with_seconds({of: float(np.median([getattr(each, of) for each in hosts])) for of in SECONDS})

    def seconds(self, graph: OpGraph) -> Floats:
        """(ops,) seconds of a graph's ops, launch included: zero for free ones, NaN for unknown ones.

        An op is found by its name if its graph was profiled, else by what the graph says of it. Where that fits
        several distinct ops, its time is their mean, weighted by how many ops are like each.
        """
        named = {name: op for op in self.ops for name in op.ops.get(graph.name, ())}
        alike: dict[OpCost, list[MeasuredOp]] = {}
        for op in self.ops:
            alike.setdefault(op.cost, []).append(op)
        mean = {}
        for cost, ops in alike.items():
            counts = [max(sum(map(len, op.ops.values())), 1) for op in ops]
            mean[cost] = float(np.average([op.seconds for op in ops], weights=counts))
        seconds = np.full(len(graph), np.nan)
        for row, (name, cost) in enumerate(zip(graph.names, op_costs(graph), strict=True)):
            found = named.get(name)
            seconds[row] = found.seconds if found is not None and found.cost == cost else mean.get(cost, np.nan)
        return np.where(is_free(graph), 0.0, seconds)


def load_profile(path: Path) -> Profile:
    """The profile in a file. Raises InputError, naming the file and the place, if it is missing or damaged."""
    return read_document(path, Profile, version=VERSION, remedy=REMEDY)


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile."""
    encoded = msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"
    write_whole(path, gzip.compress(encoded, mtime=0) if path.suffix == ".gz" else encoded)
