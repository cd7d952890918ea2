"""A model as layers in a row, cut into pieces: what programs take that say how many layers are where.

    embedding  layer layer layer | layer layer | layer layer  head
    piece 0                        piece 1       piece 2

Of an op placement a piece is what a device has: as many layers as there, and those follow one another. Of a pipeline it
is a stage, which may have no layers; or several that follow one another on a device and run as one, of which each is
recomputed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from envs.pipelines.shapes import PipelineShape
from envs.plans.plan import Plan
from envs.plans.stages import Devices
from evaluation.exports.degrees import joined_stages, recomputed_ops
from evaluation.exports.layer_rows import after, by_layers, check_equal, layers_of
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError, listed
from graphs.op_graph import Ints


@dataclass(frozen=True, eq=False)
class LayerRow:
    """Modules in pieces. What is before the layers is in the first piece, what is after them in the last."""

    keys: ModuleKeys
    layers: tuple[int, ...]  # which modules are the layers
    place: Ints  # (keys,) that each module is in: a device, or a stage
    hosts: Devices  # of each place
    piece_of: tuple[int, ...]  # (places,)

    @classmethod
    def of(cls, keys: ModuleKeys, to: str, *, equal: bool = False) -> LayerRow:
        """The modules in pieces, as the plan has the layers.

        Raises InputError as `layers_of` does, as `check_equal` if the layers must be `equal`, and for a plan that has
        modules on CPUs next to other devices.
        """
        layers = layers_of(keys)
        keys.check_on_gpus(to)
        if equal:
            check_equal(keys, layers, to)
        where = keys.places[layers]
        used = list(range(len(keys.hosts))) if keys.is_pipeline else by_layers(where)
        place = np.zeros(len(keys.keys), np.int64)
        place[layers] = np.repeat(np.arange(len(used)), [int((where == each).sum()) for each in used])
        place[after(keys, layers)] = len(used) - 1
        hosts = tuple(keys.hosts[each] for each in used)
        piece_of = joined_stages(keys.plan, hosts) if keys.is_pipeline else tuple(range(len(used)))
        return cls(keys, tuple(layers), place, hosts, piece_of)

    @property
    def piece(self) -> Ints:
        """(keys,) the piece that each module is in."""
        return np.array(self.piece_of, np.int64)[self.place]

    @property
    def devices(self) -> Devices:
        """Of each piece, several if it has replicas or shards."""
        return tuple(dict(zip(self.piece_of, self.hosts, strict=True)).values())

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

    def shape(self, to: str, *, several: bool = False, is_v: bool = False) -> PipelineShape:
        """On how many ranks the pieces go, one after the other, and over and over again if there may be `several` each.

        With `is_v` they go back and forth, in the shape of a V. Raises InputError if they do not.
        """
        ranks = [*dict.fromkeys(self.devices)]
        shape = PipelineShape(len(ranks), len(self.devices), is_v)
        goes = [ranks[shape.rank_of(piece)] for piece in range(len(self.devices))] if several else ranks
        if goes != list(self.devices) or len(self.devices) % len(ranks):
            names = [self.keys.problem.cluster.devices[each[0]].name for each in self.devices]
            way = "back and forth, in the shape of a V" if is_v else "to one device after the other"
            taken = f"stages that go {way}, as often on each" if several else "one stage on each device"
            raise InputError(
                f"{to} takes {taken}, and this plan has its stages on {', '.join(names)}; give it a plan of the placer "
                "gpipe or parallel"
            )
        return shape

    def written(self, text: str, notes: Sequence[str] = ()) -> Written:
        """The text with the plan that it says, and which device each rank is, unless that is its own number."""
        return self.keys.written(text, self.place, self.hosts, (*notes, *self._ranks()))

    @cached_property
    def plan(self) -> Plan:
        """The plan with modules in these pieces. Raises InputError as `ModuleKeys.placed`."""
        return self.keys.placed(self.place, self.hosts)

    @cached_property
    def recomputed(self) -> list[bool]:
        """(layers,) whether each runs forward again for the backward pass."""
        again = recomputed_ops(self.keys.problem, self.plan)
        return [bool(again[self.keys.modules.of_op == layer].any()) for layer in self.layers]

    @property
    def again(self) -> list[list[bool]]:
        """Of each piece, of its layers, whether they run forward again."""
        found: list[list[bool]] = [[] for _ in self.counts]
        for again, piece in zip(self.recomputed, self.piece[list(self.layers)].tolist(), strict=True):
            found[piece].append(again)
        return found

    def with_first_again(self, count: int) -> LayerRow:
        """The same, of which the first layers of each piece run forward again, at most so many, and no others."""
        place, hosts, piece_of, recompute = np.zeros_like(self.place), list[tuple[int, ...]](), list[int](), list[int]()
        of_layer = self.piece[list(self.layers)].tolist()
        for piece, devices in enumerate(self.devices):
            mine = [layer for layer, of in zip(self.layers, of_layer, strict=True) if of == piece]
            recompute += [len(hosts)] if mine else []
            for part in (mine[:count], mine[count:]) if len(mine) > count else (mine,):
                place[part] = len(hosts)
                hosts.append(devices)
                piece_of.append(piece)
        place[after(self.keys, list(self.layers))] = len(hosts) - 1
        schedule = replace(self.keys.plan.schedule, recompute=tuple(recompute))
        keys = replace(self.keys, plan=replace(self.keys.plan, schedule=schedule))
        return LayerRow(keys, self.layers, place, tuple(hosts), tuple(piece_of))

    def _ranks(self) -> tuple[str, ...]:
        ranks = [*dict.fromkeys(self.devices)]
        if ranks == sorted(ranks) and [one for each in ranks for one in each] == list(range(sum(map(len, ranks)))):
            return ()
        names = [device.name for device in self.keys.problem.cluster.devices]
        which = [f"rank {rank} is {'+'.join(names[one] for one in each)}" for rank, each in enumerate(ranks)]
        gpus = ",".join(str(self.keys.gpu_numbers[one]) for each in ranks for one in each)
        return (
            f"The text has no names of devices: {listed(which, 16)}. Start the processes so, on one server with "
            f"CUDA_VISIBLE_DEVICES={gpus}.",
        )
