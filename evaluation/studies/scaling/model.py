"""The model: what an update takes on any number of workers or ranks, from measured parts, by simulating who waits.

With workers, one process, the learner, prepares, encodes, decodes and learns; it gives out simulations and searches,
one after another, and continues when the last is done. With ranks, each does all for its own problems; they meet at
each step of Adam, in an all-reduce along a ring, and a few times more to exchange numbers.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.studies.scaling.clock import ITEMS, LEARN
from evaluation.studies.scaling.measure import Split, Update

GATHERS = 4  # collectives in which ranks tell each other numbers in an update, along the ring
REDUCES = 1  # likewise, of a single number
SEED = 0  # for choosing the measured updates that make up a larger one


@dataclass(frozen=True)
class Network:
    """What connects ranks."""

    name: str
    latency: float  # seconds of a message
    bytes_per_second: float

    def all_reduce(self, count: int, size: float) -> float:
        """Seconds along a ring of ranks (Patarasuk and Yuan 2009)."""
        return 2 * (count - 1) * (self.latency + size / count / self.bytes_per_second)

    def talk(self, count: int, steps: int, size: float) -> float:
        """Seconds of an update's communication, without waiting."""
        few = GATHERS * (count - 1) * self.latency + REDUCES * self.all_reduce(count, 4.0)
        return steps * self.all_reduce(count, size) + few


ETHERNET = Network("10 Gbit/s, 50 µs a message", 50e-6, 1.25e9)  # assumed: not measured here


def alone(update: Update) -> float:
    """Seconds in one process."""
    return sum(update.parts.values())


def learner(update: Update) -> float:
    """Seconds of what workers do not do."""
    return alone(update) - sum(map(sum, update.items.values()))


def by_workers(updates: Sequence[Update], count: int, item: float) -> float:
    """Seconds of one update that has the problems of several; the learner needs `item` seconds to give out an item."""
    found = sum(learner(update) for update in updates)
    for part in ITEMS:
        found += makespan([each for update in updates for each in update.items.get(part, ())], count, item)
    return found


def makespan(seconds: Sequence[float], count: int, item: float) -> float:
    """When the last of some items is done, each given out in its turn to the worker that is free first."""
    free, last = [0.0] * min(count, max(len(seconds), 1)), 0.0
    for number, each in enumerate(seconds):
        done = max(heapq.heappop(free), (number + 1) * item) + each
        heapq.heappush(free, done)
        last = max(last, done)
    return last


def by_ranks(updates: Sequence[Update], talk: float) -> float:
    """Seconds of an update of as many ranks as measured updates are given, one each."""
    rolled = max(alone(update) - update.parts.get(LEARN, 0.0) for update in updates)
    return rolled + max(update.parts.get(LEARN, 0.0) for update in updates) + talk


def dealt(updates: Sequence[Update], count: int) -> list[list[Update]]:
    """By rank, the parts of each update that it would have, if its items and all else were dealt out."""
    return [[_share(update, rank, count) for update in updates] for rank in range(count)]


def _share(update: Update, rank: int, count: int) -> Update:
    items = {part: seconds[rank::count] for part, seconds in update.items.items()}
    evenly = {part: all_of - sum(update.items.get(part, ())) for part, all_of in update.parts.items()}
    return Update({part: each / count + sum(items.get(part, ())) for part, each in evenly.items()}, items)


def drawn(split: Split, count: int) -> list[Update]:
    """(count,) measured updates drawn at random, which stand for one update with `count` times the problems."""
    rng = np.random.default_rng((SEED, count))
    return [split.updates[i] for i in rng.integers(len(split.updates), size=count)]


def larger_by_workers(split: Split, count: int, item: float) -> float:
    """By how much an update with `count` times the problems is faster on as many workers than in one process."""
    some = drawn(split, count)
    return sum(map(alone, some)) / by_workers(some, count, item) if count > 1 else 1.0


def larger_by_ranks(split: Split, count: int, network: Network) -> float:
    """Likewise, on as many ranks."""
    some = drawn(split, count)
    talk = network.talk(count, split.epochs, split.weight_bytes) if count > 1 else 0.0
    return sum(map(alone, some)) / by_ranks(some, talk)


def same_by_workers(split: Split, count: int, item: float) -> float:
    """By how much updates as they are are faster on some workers than in one process, which one worker is."""
    if count == 1:
        return 1.0
    return sum(map(alone, split.updates)) / sum(by_workers([each], count, item) for each in split.updates)


def same_by_ranks(split: Split, count: int, all_reduce: float) -> float:
    """By how much updates as they are are faster on some ranks, with what an all-reduce takes there."""
    talk = (split.epochs + GATHERS + REDUCES) * all_reduce
    shares = zip(*dealt(split.updates, count), strict=True)
    return sum(map(alone, split.updates)) / sum(by_ranks(each, talk) for each in shares)


def bottleneck(split: Split, item: float) -> float:
    """From how many workers on the learner is busy for longer than each of them, however large the update."""
    items = sum(len(seconds) for update in split.updates for seconds in update.items.values())
    work = sum(sum(seconds) for update in split.updates for seconds in update.items.values())
    return work / (sum(map(learner, split.updates)) + items * item)


def most(split: Split, item: float) -> float:
    """The speed-up that no number of workers exceeds, however large the update."""
    items = sum(len(seconds) for update in split.updates for seconds in update.items.values())
    return sum(map(alone, split.updates)) / (sum(map(learner, split.updates)) + items * item)
