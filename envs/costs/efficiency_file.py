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

A share may exceed 1: what fits in a cache is read faster than memory. The backward ops of a kind
("aten.mm.grad", "aten.mm.grad_weight") are of its class unless they are listed themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import tomli_w

from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.op_graph import RECOMPUTED, Floats

VERSION = 1
ENDINGS = (".toml", ".json")
BUNDLED = Path(__file__).parent / "efficiencies"  # by name: the file's stem

Share = Annotated[float, msgspec.Meta(gt=0)]


class Efficiency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Shares of a device's peak speeds."""

    arithmetic: Share = 1.0  # of its FLOP/s
    traffic: Share = 1.0  # of its bytes/s


class KindClass(Efficiency, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Kinds of ops that reach the same shares."""

    name: str
    kinds: list[str]


class Efficiencies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an efficiency file holds."""

    schema: Literal["placelab.efficiency"] = "placelab.efficiency"
    version: int = VERSION
    source: str
    other: Efficiency = Efficiency()  # of kinds that no class lists
    classes: list[KindClass] = []

    def of(self, kinds: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Shares of the peak FLOP/s and of the peak bytes/s that ops of these kinds reach, each (ops,)."""
        listed: dict[str, Efficiency] = {kind: each for each in self.classes for kind in each.kinds}
        forward = (kind.removesuffix(".grad").removesuffix(".grad_weight").removesuffix(RECOMPUTED) for kind in kinds)
        found = [listed.get(kind, listed.get(plain, self.other)) for kind, plain in zip(kinds, forward, strict=True)]
        return np.array([each.arithmetic for each in found]), np.array([each.traffic for each in found])


def load_efficiencies(what: str) -> Efficiencies:
    """The efficiencies in a file, or those of a name such as "typical".

    Raises InputError for an unknown name, a file that is missing or damaged, or a kind that is listed twice.
    """
    bundled = {path.stem: path for path in sorted(BUNDLED.glob("*.toml"))}
    if what not in bundled and not what.endswith(ENDINGS):
        sentence = unknown("efficiency", what, ("peak", *bundled))
        raise InputError(f"{sentence}; efficiencies are also given as a file, *.toml or *.json")
    path = bundled.get(what, Path(what))
    remedy = "`placelab profile MODEL --out PROFILE --efficiencies FILE` writes one"
    efficiencies = read_document(path, Efficiencies, version=VERSION, remedy=remedy)
    kinds = [kind for each in efficiencies.classes for kind in each.kinds]
    if twice := next((kind for position, kind in enumerate(kinds) if kind in kinds[:position]), None):
        raise InputError(f"{path}: kind {twice!r} is listed twice; a kind is of one class")
    return efficiencies


def save_efficiencies(efficiencies: Efficiencies, path: Path) -> None:
    """Write a TOML file. Raises InputError for another ending."""
    check_ending(path)
    write_whole(path, tomli_w.dumps(msgspec.to_builtins(efficiencies)))


def check_ending(path: Path) -> None:
    """Raise InputError for a file's name that `save_efficiencies` does not write."""
    if path.suffix != ".toml":
        raise InputError(f"{path}: the name of an efficiency file that is written ends in .toml")
