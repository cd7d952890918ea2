"""Stages that a user gives: how many blocks each has, or the modules at which the second and later ones begin.

    5+6+6+7                    four stages of a model of 24 blocks, as torchgpipe's `balance` gives them
    blocks.3.conv3+blocks.12   three stages, as the `split_spec` of torch.distributed.pipelining gives them

Counts are of blocks (`graphs.op_groups.layer_names.unit_blocks`): what is before the first one is with it, and what
follows the last one with that. A module is named as the model names it; an op of a graph may be named as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.pipelines.unit_order import pipeline_positions
from graphs.foundation.errors import InputError, unknown
from graphs.op_graph import Ints, OpGraph, Phase
from graphs.op_groups.layer_names import named_blocks, path, unit_blocks
from graphs.problem import Problem


@dataclass(frozen=True)
class GivenStages:
    """Stages of a pipeline by hand; raises InputError for words that are neither all counts nor all names."""

    placer: str
    """Who was asked for them, for what it is told."""
    text: str
    """Counts or names, joined by "+"."""

    def __post_init__(self) -> None:
        if not all(self._words) or 0 in self.counts:
            raise InputError(
                f"{self.placer}: stages is {self.text!r}; expected how many blocks each has, such as 5+6+6+7, or the "
                "modules at which the second and later ones begin, such as layers.6+layers.12"
            )

    def __len__(self) -> int:
        return len(self.counts) or len(self._words) + 1

    def of_units(self, problem: Problem) -> Ints:
        """(units,) the stage of each.

        Raises InputError for counts that are not all blocks, for modules that there are not, that do not follow one
        another, or where ops that are placed as one are on both sides.
        """
        return self._by_counts(problem) if self.counts else self._by_names(problem)

    @property
    def _words(self) -> list[str]:
        return self.text.split("+")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """(stages,) blocks of each; empty if modules are named."""
        return tuple(map(int, self._words)) if all(map(str.isdecimal, self._words)) else ()

    def _by_counts(self, problem: Problem) -> Ints:
        block = pipeline_blocks(problem, self.placer, len(self))
        count = int(block.max()) + 1
        if sum(self.counts) != count:
            raise InputError(
                f"{self.placer}: stages={self.text} says {sum(self.counts)} blocks, {problem.graph.name!r} has "
                f"{count}; change one"
            )
        return np.repeat(np.arange(len(self)), self.counts)[block]

    def _by_names(self, problem: Problem) -> Ints:
        graph, begins = problem.graph, list[int]()
        position = pipeline_positions(problem, problem.units.first_op)
        for name in self._words:
            ops = _ops_of(graph, name, self.placer)
            if across := _name_across(graph, min(ops)):
                raise InputError(
                    f"{self.placer}: no stage can begin at {name!r}, since {across!r} and ops after it are placed as "
                    "one group; place with --groups none, or name another module"
                )
            begins.append(int(position[graph.units[ops]].min()))
            if begins[-1] <= max(begins[:-1], default=0):
                raise InputError(
                    f"{self.placer}: the stage that begins at {name!r} would leave nothing to the one before it; name "
                    "modules in the order of the forward pass"
                )
        return np.searchsorted(begins, position, side="right")


def pipeline_blocks(problem: Problem, placer: str, stages: int) -> Ints:
    """(units,) the block of each, such that what waits for a block is not before it.

    Raises InputError for a graph whose names show no blocks; the sentence says for how many stages who asked.
    """
    blocks = unit_blocks(problem.graph)
    if len(blocks) == 0:
        raise InputError(
            f"{placer}: the names of {problem.graph.name!r} show no blocks, as numbers in a container do, so that it "
            f"cannot be cut into {stages} stages; name the modules at which stages begin, or have gpipe balance time"
        )
    position = pipeline_positions(problem, blocks)
    at = np.zeros(int(position.max()) + 1, np.int64)
    np.maximum.at(at, position, blocks)
    found: Ints = np.maximum.accumulate(at)[position]
    return found


def torn_blocks(graph: OpGraph, placer: str, stages: Sequence[int]) -> tuple[str, ...]:
    """A note on blocks whose ops are in several stages, (ops,), as op groups hold ops of several blocks; or none."""
    block, stage = named_blocks(graph), np.asarray(stages)
    inside = block >= 0
    first, last = np.full(int(block.max(initial=0)) + 1, len(graph)), np.zeros(int(block.max(initial=0)) + 1, np.int64)
    np.minimum.at(first, block[inside], stage[inside])
    np.maximum.at(last, block[inside], stage[inside])
    torn = np.flatnonzero(first < last)
    if not len(torn):
        return ()
    which = f"blocks {', '.join(map(str, torn[:4]))}{', ...' if len(torn) > 4 else ''} are each"
    return (
        f"{placer}: {f'block {torn[0]} is' if len(torn) == 1 else which} in several stages, since op groups hold ops "
        "of several blocks; place with --groups none for stages of whole blocks.",
    )


def _name_across(graph: OpGraph, begin: int) -> str:
    """The first forward op before op `begin` whose unit has one from there on, too; "" if there is none."""
    forward = np.flatnonzero(graph.phase == Phase.FORWARD)
    before, units = forward < begin, graph.units[forward]
    across = forward[before & np.isin(units, units[~before])]
    return graph.names[across[0]] if len(across) else ""


def _ops_of(graph: OpGraph, name: str, placer: str) -> list[int]:
    """The forward ops of a module, or the one op of that name."""
    forward = np.flatnonzero(graph.phase == Phase.FORWARD).tolist()
    found = [op for op in forward if graph.names[op] == name or graph.names[op].startswith((f"{name}.", f"{name}/"))]
    if not found:
        paths = [path(graph.names[op]) for op in forward]
        modules = dict.fromkeys(".".join(parts[:depth]) for parts in paths for depth in range(1, len(parts) + 1))
        raise InputError(f"{placer}: stages: {unknown('module', name, filter(None, modules))}")
    return found
