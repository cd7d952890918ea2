"""Efficiencies: the share of a device's peak speeds that each kind of op reaches, in a TOML or JSON file.

    schema = "placelab.efficiency"
    version = 1
    source = "where the numbers come from"
    other = { arithmetic = 0.5, traffic = 0.8 }

    [[classes]]
    name = "product"
    kinds = ["aten.mm", "aten.addmm"]
    arithmetic = 0.7
    traffic = 0.8

A share may exceed 1: what fits in a cache is read faster than memory, and Winograd's algorithm computes a convolution
with fewer FLOP than are counted. Small ops reach less: with `half`, in seconds, an op that would take t seconds at the
shares of its class takes t + sqrt(half t), which grows with t, and is twice t where t = half. The backward ops of a
kind ("aten.mm.grad", "aten.mm.grad_weight") are of its class unless they are listed themselves; kinds that end in
".winograd", ".unaligned", ".wide" or ".causal" are those of `envs.costs.kernel_kinds`. A GPU may have its own numbers:

    [gpus.p4]
    like = ["t4", "l4"]  # GPUs without measurements that are taken to reach the same shares
    classes.product = { arithmetic = 0.6, traffic = 0.7, half = 2e-5 }

A device is taken for the GPU of these whose data sheet is nearest to its own numbers (`envs/costs/nearest_gpu.py`).
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import tomli_w

from envs.costs.kernel_kinds import listed_names
from graphs.devices.catalogue import catalogue
from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.op_graph import Floats

VERSION = 1
ENDINGS = (".toml", ".json")
BUNDLED = Path(__file__).parent / "efficiencies"  # by name: the file's stem

Share = Annotated[float, msgspec.Meta(gt=0)]


class Shares(NamedTuple):
    """What ops reach, each (ops,)."""

    arithmetic: Floats
    traffic: Floats
    half: Floats  # seconds


class Efficiency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of a device's peak speeds."""

    arithmetic: Share = 1.0  # of its FLOP/s
    traffic: Share = 1.0  # of its bytes/s
    half: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # seconds: an op that should take as long takes twice as long


class KindClass(Efficiency, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kinds of ops that reach the same shares."""

    name: str
    kinds: list[str]


class GpuClasses(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one GPU reaches."""

    like: list[str] = []  # other GPUs of the catalogue
    classes: dict[str, Efficiency]  # by the name of a class, or "other"


class Efficiencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an efficiency file holds."""

    schema: Literal["placelab.efficiency"] = "placelab.efficiency"
    version: int = VERSION
    source: str
    other: Efficiency = Efficiency()  # of kinds that no class lists
    classes: list[KindClass] = []
    gpus: dict[str, GpuClasses] = {}  # by their name in the catalogue

    def of(self, kinds: Sequence[str], gpu: str = "") -> Shares:
        """What ops of these kinds reach, on a GPU of `gpus` or, without a name, on any device."""
        own = self.gpus[gpu].classes if gpu else {}
        other = own.get("other", self.other)
        listed: dict[str, Efficiency] = {kind: own.get(each.name, each) for each in self.classes for kind in each.kinds}
        of_kind = {
            kind: next((listed[name] for name in listed_names(kind) if name in listed), other) for kind in set(kinds)
        }
        return Shares(*(np.array([getattr(of_kind[kind], key) for kind in kinds]) for key in Shares._fields))

    def measured_as(self) -> dict[str, str]:
        """By the names of the catalogue, for which GPU of `gpus` each is taken."""
        return {name: gpu for gpu, each in self.gpus.items() for name in (*each.like, gpu)}


def load_efficiencies(what: str) -> Efficiencies:
    """The efficiencies in a file, or those of a name such as "typical".

    Raises InputError for an unknown name, a file that is missing or damaged, a kind or a GPU that is listed twice, and
    a GPU or a class that does not exist.
    """
    if what.endswith(ENDINGS):
        return _read(Path(what))
    bundled = sorted(path.stem for path in BUNDLED.glob("*.toml"))
    if what not in bundled:
        sentence = unknown("efficiency", what, ("peak", *bundled))
        raise InputError(f"{sentence}; efficiencies are also given as a file, *.toml or *.json")
    return _bundled(what)


@cache
def _bundled(name: str) -> Efficiencies:
    """Read once: searches ask for costs again and again."""
    return _read(BUNDLED / f"{name}.toml")


def _read(path: Path) -> Efficiencies:
    remedy = "`placelab profile MODEL --out PROFILE --efficiencies FILE` writes one"
    efficiencies = read_document(path, Efficiencies, version=VERSION, remedy=remedy)
    kinds = [kind for each in efficiencies.classes for kind in each.kinds]
    if twice := next((kind for position, kind in enumerate(kinds) if kind in kinds[:position]), None):
        raise InputError(f"{path}: kind {twice!r} is listed twice; a kind is of one class")
    _check_gpus(efficiencies, path)
    return efficiencies


def _check_gpus(efficiencies: Efficiencies, path: Path) -> None:
    """Raise InputError for GPUs that do not exist or are listed twice, and for classes that do not exist."""
    known, classes = catalogue().devices, ("other", *(each.name for each in efficiencies.classes))
    listed = list[str]()
    for gpu, each in efficiencies.gpus.items():
        for name in (gpu, *each.like):
            if name not in known:
                raise InputError(f"{path}: gpus.{gpu}: {unknown('device', name, known)}")
            if name in listed:
                raise InputError(f"{path}: gpus.{gpu}: {name} is listed twice; it is like one GPU")
            listed.append(name)
        if lacking := next((name for name in each.classes if name not in classes), None):
            raise InputError(f"{path}: gpus.{gpu}: {unknown('class', lacking, classes)}")


def save_efficiencies(efficiencies: Efficiencies, path: Path) -> None:
    """Write a TOML file. Raises InputError for another ending."""
    check_ending(path)
    write_whole(path, tomli_w.dumps(msgspec.to_builtins(efficiencies)))


def check_ending(path: Path) -> None:
    """Raise InputError for a file's name that `save_efficiencies` does not write."""
    if path.suffix != ".toml":
        raise InputError(f"{path}: the name of an efficiency file that is written ends in .toml")
