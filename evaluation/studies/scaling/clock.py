"""A clock that says on what a trainer's updates are spent: it listens at the policy, the engine and the ranks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

from graphs.foundation.engine import Item, Killed, Result
from graphs.problem import Problem
from placers.learned.sequential.policy import SequentialPolicy
from training.ranks import Ranks
from training.resources import is_heavy
from training.rollouts import Simulations
from training.world.renewed import RenewedProblems

PREPARE, ENCODE, DECODE, SIMULATE, SEARCH, LEARN, COMMUNICATE = PARTS = (
    "prepare", "encode", "decode", "simulate", "search", "learn", "communicate"
)  # fmt: skip
ITEMS = (SIMULATE, SEARCH)  # what workers do

P = ParamSpec("P")
R = TypeVar("R")


class Clock:
    """Seconds by part; those of a part that another one interrupts are the other's."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.start()

    def start(self) -> None:
        """Forget what was measured."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.items: dict[str, list[float]] = defaultdict(list)
        self._open, self._since = list[str](), self._now()

    def enter(self, part: str) -> None:
        """A part begins."""
        self._book()
        self._open.append(part)

    def leave(self) -> None:
        """The part that began last has ended."""
        self._book()
        self._open.pop()

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """What happens inside is a part."""
        self.enter(part)
        try:
            yield
        finally:
            self.leave()

    def around(self, part: str, do: Callable[P, R]) -> Callable[P, R]:
        """A function whose seconds are of a part."""

        @wraps(do)
        def timed(*args: P.args, **keywords: P.kwargs) -> R:
            with self.of(part):
                return do(*args, **keywords)

        return timed

    def _book(self) -> None:
        now = self._now()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


class ClockedEngine:
    """Does one item after another, and notes the seconds of each that would be sent to workers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """As `Engine.results`."""
        for item in items:
            part = SIMULATE if isinstance(item, Simulations) else SEARCH
            before = self._clock.seconds[part]
            with self._clock.of(part):
                result = do(item)
            if is_heavy(item):
                self._clock.items[part].append(self._clock.seconds[part] - before)
            yield item, result


@dataclass(frozen=True)
class ClockedRanks(Ranks):
    """Ranks whose talk is timed; waiting for each other is a part of it."""

    clock: Clock = field(default_factory=lambda: Clock(time.perf_counter))

    def gathered(self, mine: Any) -> list[Any]:
        """As of `Ranks`."""
        with self.clock.of(COMMUNICATE):
            return super().gathered(mine)

    def any(self, mine: bool) -> bool:
        """As of `Ranks`."""
        with self.clock.of(COMMUNICATE):
            return super().any(mine)

    def add_gradients(self, weights: Sequence[torch.nn.Parameter]) -> None:
        """As of `Ranks`."""
        with self.clock.of(COMMUNICATE):
            super().add_gradients(weights)


@dataclass(frozen=True)
class ClockedProblems(RenewedProblems):
    """Random problems whose making is timed."""

    clock: Clock = field(default_factory=lambda: Clock(time.process_time))

    def problem(self, number: int) -> Problem:
        """As of `RenewedProblems`."""
        with self.clock.of(PREPARE):
            return super().problem(number)


def listen(clock: Clock, policy: SequentialPolicy) -> None:
    """Note the seconds of a policy's views, encodings and roll-outs; with gradients, encoding is a part of learning."""
    parts = dict.fromkeys(("act", "candidates", "follow", "likelihoods", "actions_of"), DECODE) | {"view": PREPARE}
    for name, part in parts.items():
        setattr(policy, name, clock.around(part, getattr(policy, name)))

    def begins(*_: object) -> None:
        if not torch.is_grad_enabled():
            clock.enter(ENCODE)

    def ends(*_: object) -> None:
        if not torch.is_grad_enabled():
            clock.leave()

    policy.encoder.register_forward_pre_hook(begins)
    policy.encoder.register_forward_hook(ends)
