"""Links: tensors are sent and received between processes, without waiting.

With gloo a message is found by its tag. NCCL has no tags, and a device does one thing of a communicator after another:
what one process sends another arrives in order, and holds up what comes after it. So each pair of processes has a
communicator for each direction.
"""

from collections.abc import Iterable
from functools import cache
from typing import Protocol

from torch import Tensor, distributed

Pair = tuple[int, int]  # source and destination


class Work(Protocol):
    """A message on its way."""

    def is_completed(self) -> bool:
        """Whether it has arrived, of a GPU; on processors whether somebody has waited for it."""
        ...

    def wait(self) -> object:
        """Return when it has arrived or, on a GPU, when what follows on its stream waits for that."""
        ...


class Links:
    """The links of this process, whose rank is that of its device."""

    def __init__(self, rank: int, pairs: Iterable[Pair]) -> None:
        """All processes make theirs together, with all `pairs` between which there are messages."""
        self._rank = rank
        self._groups: dict[Pair, distributed.ProcessGroup] = {}
        self._peers: dict[Pair, int] = {}  # the number of the other process in the group of a pair
        for pair in sorted(set(pairs)):
            group = _communicator(pair)
            if rank in pair:
                self._groups[pair] = group
                self._peers[pair] = distributed.get_group_rank(group, sum(pair) - rank)

    def send(self, tensor: Tensor, destination: int, tag: int) -> Work:
        """Begin to send a contiguous tensor, which must stay as it is until that is done."""
        pair = self._rank, destination
        return self._groups[pair].send([tensor], self._peers[pair], tag)  # isend checks for 10 us what is known here

    def receive(self, tensor: Tensor, source: int, tag: int) -> Work:
        """Begin to receive a tensor."""
        pair = source, self._rank
        return self._groups[pair].recv([tensor], self._peers[pair], tag)


@cache
def _communicator(pair: Pair) -> distributed.ProcessGroup:
    """What messages go through from one process to another; to be called by all, in the same order of pairs."""
    world = distributed.group.WORLD
    assert world is not None
    if distributed.get_backend(world) == "gloo":
        return world
    found: distributed.ProcessGroup = distributed.new_group(list(pair))
    return found
