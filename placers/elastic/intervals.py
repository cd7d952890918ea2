"""Intervals: the sequence of plans of a training run in which layers freeze, and what changes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from placers.elastic.auto_pipe import micro_batches, shortened, stage_sizes

CACHE_FROM = 3  # frozen layers; the paper's for ViT, where reading is faster than computing from there on

SizesOf = Callable[[int], Sequence[float]]  # frozen layers -> sizes of the sub-layers that are trained, in millions


@dataclass(frozen=True)
class Parts:
    """Which parts of PipeTransformer are in use; AutoFreeze is the schedule of frozen layers."""

    pipe: bool = True
    """AutoPipe: pipelines become shorter."""
    replicas: bool = True
    """AutoDP: devices that become free have further pipelines."""
    cache: bool = True
    """AutoCache: what frozen layers make is read."""


@dataclass(frozen=True)
class Setup:
    """What a plan is made for."""

    frozen: int
    """Layers that are not trained."""
    cached: int
    """The first of these, whose outputs are read from the cache."""
    devices: int
    """Of each pipeline."""
    pipelines: int
    """Replicas of the whole pipeline."""
    micro_batches: int
    """Of a step."""


@dataclass(frozen=True)
class Interval:
    """Epochs that have one setup."""

    first: int
    end: int  # the first epoch that is not in it
    setup: Setup

    def __len__(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class Run:
    """The devices of a training run, and how many of them a pipeline has at the beginning."""

    devices: int
    first: int

    def setups(
        self, frozen: Sequence[int], sizes_of: SizesOf, parts: Parts = Parts(), cache_from: int = CACHE_FROM
    ) -> tuple[Setup, ...]:
        """(epochs,) the setup of each epoch, given how many layers are frozen in each, (epochs,).

        Pipelines never become longer. What is read in an epoch was made in the one before: an epoch in which more
        layers freeze computes these from the outputs of those that were frozen already. Caching begins with
        `cache_from` frozen layers.
        """
        length, most, found = self.first, max(stage_sizes(sizes_of(0), self.first)), list[Setup]()
        for before, now in zip((0, *frozen), frozen, strict=False):
            if parts.pipe and now:
                length = shortened(sizes_of(now), length, most)
            pipelines = self.devices // (length if parts.replicas else self.first)
            cached = before if parts.cache and before >= cache_from else 0
            found.append(Setup(now, cached, length, pipelines, micro_batches(length)))
        return tuple(found)


def intervals(setups: Sequence[Setup]) -> tuple[Interval, ...]:
    """Epochs in a row with the same setup, together."""
    found, first = list[Interval](), 0
    for setup, epochs in groupby(setups):
        end = first + len(list(epochs))
        found.append(Interval(first, end, setup))
        first = end
    return tuple(found)
