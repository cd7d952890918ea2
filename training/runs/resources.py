"""Resources: what a training run is computed with. They change its speed, and of its results no more than rounding."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from graphs.foundation.engine import Engine, Item, Killed, Result, Workers
from graphs.foundation.errors import InputError
from graphs.foundation.items import Threads, check_workers, opened
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.policy import SavedPolicy

SHARED = (Problem, OpGraph)  # what many searches and simulations have in common: sent to a worker once
WORTH_SENDING = 2e-2  # seconds of an item, by estimate: one process does shorter ones sooner (docs/how-to/cluster.md)


@dataclass(frozen=True)
class Sending:
    """Sends those items to another engine that take long, and does the others in this process."""

    engine: Engine

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """As `Engine.results`."""
        light, heavy = ([item for item in items if is_heavy(item) == sent] for sent in (False, True))
        yield from Threads().results(do, light)
        yield from self.engine.results(do, heavy)


def is_heavy(item: object) -> bool:
    """Whether an item takes longer than sending it, by what it says of its seconds; one that says nothing does."""
    return getattr(item, "seconds", np.inf) >= WORTH_SENDING


@dataclass(frozen=True)
class Resources:
    """Processes for searches and simulations, and a device for the encoder."""

    workers: Workers = 1  # processes, or the address of a dask scheduler
    device: str = "cpu"  # or "cuda", "cuda:1"; all but the encoder of the policy stays on the processor

    def check(self) -> None:
        """Raise InputError, before anything is captured, if there are no such workers, or no such device."""
        check_workers(self.workers)
        _ = self.torch_device

    @property
    def torch_device(self) -> torch.device:
        """The encoder's; of "cuda", each rank of a machine has a card of its own, as far as there are as many."""
        try:
            device = torch.device(self.device)
        except RuntimeError:
            device = None
        if device is None or device.type not in ("cpu", "cuda"):
            raise InputError(f"unknown device {self.device!r}; expected cpu, cuda, or a card by its number, cuda:1")
        if device.type == "cpu":
            return device
        cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not cards:
            raise InputError(f"device is {self.device!r}, and PyTorch sees no CUDA card here; leave it out for the CPU")
        if (device.index or 0) >= cards:
            raise InputError(
                f"device is {self.device!r}, and PyTorch sees {cards} CUDA cards here; expected cuda:0 to "
                f"cuda:{cards - 1}"
            )
        own = int(os.environ.get("LOCAL_RANK", "0")) % cards
        return device if device.index is not None else torch.device("cuda", own)

    def place_encoder(self, policy: SavedPolicy) -> None:
        """Move the encoder of a policy to its device. Raises InputError for a policy without one."""
        device = self.torch_device
        if policy.on_card is not None:
            policy.on_card.to(device)
        elif device.type != "cpu":
            raise InputError(
                f"device is {self.device!r}, and of this placer's policy nothing is computed on a card; leave it out"
            )

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """What does searches and simulations; its processes end with the context."""
        with opened(self.workers, SHARED, threads=True) as engine:
            yield engine if self.workers == 1 else Sending(engine)


PLAIN = Resources()  # one process, on the CPU
