"""A model as layers in a row, cut into pieces: what programs take that say how many layers are where.

    embedding  layer layer layer | layer layer | layer layer  head
    piece 0                        piece 1       piece 2

Of an op placement a piece is what a device has: as many layers as there, and those follow one another. Of a pipeline it
is a stage, which may have no layers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from envs.pipelines.shapes import Shape
from envs.stages import Devices
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints


@dataclass(frozen=True, eq=False)
class Row:
    """Modules in pieces. What is before the layers is in the first piece, what is after them in the last."""

    keys: ModuleKeys
    layers: tuple[int, ...]  # which modules are the layers
    piece: Ints  # (keys,) that each module is in
    devices: Devices  # of each piece, several if it has replicas

    @classmethod
    def of(cls, keys: ModuleKeys) -> Row:
        """The modules in pieces, as the plan has the layers. Raises InputError as `layers_of` does."""
        layers = layers_of(keys)
        where = keys.places[layers]
        used = list(range(len(keys.hosts))) if keys.is_pipeline else by_layers(where)
        piece = np.zeros(len(keys.keys), np.int64)
        piece[layers] = np.repeat(np.arange(len(used)), [int((where == place).sum()) for place in used])
        piece[after(keys, layers)] = len(used) - 1
        return cls(keys, tuple(layers), piece, tuple(keys.hosts[place] for place in used))

    @property
    def counts(self) -> list[int]:
        """Layers of each piece."""
        of_layers = self.piece[list(self.layers)]
        return [int((of_layers == piece).sum()) for piece in range(len(self.devices))]

    @property
    def parts(self) -> list[list[str]]:
        """The modules of each piece, by name, in the order of the model. Its own tensors are in all pieces."""
        named = [*zip(self.keys.keys, self.piece.tolist(), strict=True)][self.keys.modules.tensors :]
        return [[key for key, piece in named if piece == number] for number in range(len(self.devices))]

    def shape(self, to: str, *, several: bool = False, is_v: bool = False) -> Shape:
        """On how many ranks the pieces go, one after the other, and over and over again if there may be `several` each.

        With `is_v` they go back and forth, in the shape of a V. Raises InputError if they do not, and if they have
        replicas, but not as many each.
        """
        if len({len(each) for each in self.devices}) > 1:
            counts = ", ".join(str(len(each)) for each in self.devices)
            raise InputError(f"{to} takes as many replicas of each stage, and those of this plan have {counts} devices")
        ranks = [*dict.fromkeys(self.devices)]
        shape = Shape(len(ranks), len(self.devices), is_v)
        goes = [ranks[shape.rank_of(piece)] for piece in range(len(self.devices))] if several else ranks
        if goes != list(self.devices) or len(self.devices) % len(ranks):
            names = [self.keys.problem.cluster.devices[each[0]].name for each in self.devices]
            way = "back and forth, in the shape of a V" if is_v else "to one device after the other"
            taken = f"stages that go {way}, as often on each" if several else "one stage on each device"
            raise InputError(f"{to} takes {taken}, and this plan has its stages on {', '.join(names)}")
        return shape

    def written(self, text: str) -> Written:
        """The text with the plan that it says."""
        return Written(text, self.keys.problem, self.keys.placed(self.piece, self.devices))


def by_layers(where: Ints) -> list[int]:
    """The places of layers, (layers,), in the order of what they have."""
    return sorted(set(where.tolist()), key=lambda place: float(np.flatnonzero(where == place).mean()))


def after(keys: ModuleKeys, layers: list[int]) -> Bools:
    """(keys,) whether each module is called after the last of the layers."""
    found: Bools = keys.first_op > keys.first_op[layers].max()
    found[layers] = False
    return found


def layers_of(keys: ModuleKeys) -> list[int]:
    """The numbers of the modules that are layers: the parts of the module that has most numbered ones.

    Raises InputError if none has two, and if other modules are between them.
    """
    numbered = defaultdict[str, list[int]](list)
    for index, key in enumerate(keys.keys):
        parent, _, last = key.rpartition(".")
        if last.isdecimal():
            numbered[parent].append(index)
    layers = max(numbered.values(), key=len, default=[])
    if len(layers) < 2 or layers != list(range(layers[0], layers[0] + len(layers))):
        raise InputError(
            f"{keys.problem.graph.name!r} is no row of numbered layers, of which this export says how many are on "
            "each device; use `to='device_map'`"
        )
    return layers
