"""Ranks: the processes that train one policy together, as `torchrun` starts them.

    torchrun --nproc-per-node 2 -m placelab train released --set ppo.shards=2 --out runs/mine

Every rank holds the whole policy, and learns from problems of its own. Gradients are added in one all-reduce of a flat
vector, so that all ranks take the same step. What else they say to each other is a few numbers. A process that nothing
like that started is rank 0 of 1, and says nothing to anyone.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from graphs.foundation.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The number of this process, and how many there are."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files, and shows progress."""
        return self.rank == 0

    def gathered(self, mine: T) -> list[T]:
        """What each rank has, in order; every rank has to ask, with what pickles."""
        if self.count == 1:
            return [mine]
        found: list[T | None] = [None] * self.count
        with _connected():
            distributed.all_gather_object(found, mine)
        return [each for each in found if each is not None]

    def any(self, mine: bool) -> bool:
        """Whether it is so on any rank; every rank has to ask."""
        if self.count == 1:
            return mine
        flag = torch.tensor(float(mine))
        with _connected():
            distributed.all_reduce(flag)
        return bool(flag)

    def wait(self) -> None:
        """Wait until every rank is here."""
        self.any(False)

    def add_gradients(self, weights: Sequence[nn.Parameter]) -> None:
        """Give every rank the sum of the ranks' gradients; a weight without a gradient counts as 0."""
        if self.count == 1:
            return
        flat = torch.cat([_gradient(weight).flatten().cpu() for weight in weights])
        with _connected():
            distributed.all_reduce(flat)
        begin = 0
        for weight in weights:
            weight.grad = flat[begin : begin + weight.numel()].view_as(weight).to(weight.device, copy=True)
            begin += weight.numel()


ALONE = Ranks()
_JOINED = count()  # how often this process has


def is_restarted() -> bool:
    """Whether torchrun has started the ranks again, because one of them had died."""
    return _restarts() > 0


@contextmanager
def joined() -> Iterator[Ranks]:
    """The ranks that torchrun started with this process, connected by gloo; alone, if nothing did.

    All but the first print no results.
    """
    if not distributed.is_torchelastic_launched() or distributed.is_initialized():
        yield ALONE
        return
    store, rank, ranks_in_all = next(rendezvous("env://"))
    # the store outlives ranks that have died, whose addresses it still holds
    store = PrefixStore(f"{_restarts()}.{next(_JOINED)}", store)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks_in_all)
    try:
        ranks = Ranks(rank, ranks_in_all)
        if not ranks.is_first:
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # until the process ends
        yield ranks
    finally:
        distributed.destroy_process_group()


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of gloo
        raise InputError(
            "another process of this training has ended, and this one ends with it; what was saved last is resumed by "
            "`--resume`, and by torchrun itself if it was started with --max-restarts"
        ) from error


def _restarts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _gradient(weight: nn.Parameter) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad
