"""Links: tensors are sent and received between processes, without waiting.

With gloo a message is found by its tag, so that the order of messages does not matter. NCCL has no tags: what one
process sends another arrives in order, and a device does one thing of a communicator after another. So there are two
communicators, towards higher and towards lower ranks, and what has been asked for but not sent holds up nothing that
goes the other way. NCCL was not tried: it takes several GPUs.
"""

from functools import cache
from typing import Protocol

from torch import Tensor, distributed


class Work(Protocol):
    """A message on its way."""

    def wait(self) -> object:
        """Return when it has arrived or, on a GPU, when what follows on its stream waits for that."""
        ...


class Links:
    """The links of this process, whose rank is that of its device."""

    def __init__(self, rank: int) -> None:
        """All processes make theirs together."""
        self._rank = rank
        world = distributed.group.WORLD
        assert world is not None
        self._up, self._down = _groups(world)

    def send(self, tensor: Tensor, destination: int, tag: int) -> Work:
        """Begin to send a contiguous tensor, which must stay as it is until that is done."""
        group = self._up if destination > self._rank else self._down
        return group.send([tensor], destination, tag)  # below isend, which checks for 10 us what is known here

    def receive(self, tensor: Tensor, source: int, tag: int) -> Work:
        """Begin to receive a tensor."""
        group = self._up if source < self._rank else self._down
        return group.recv([tensor], source, tag)


@cache
def _groups(world: distributed.ProcessGroup) -> tuple[distributed.ProcessGroup, distributed.ProcessGroup]:
    """Those that messages go through to higher ranks, and to lower ones."""
    if distributed.get_backend(world) != "nccl":
        return world, world
    up, down = (distributed.new_group() for _ in range(2))
    return up, down
