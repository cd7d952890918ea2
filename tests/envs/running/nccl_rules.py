"""NCCL's rules on processors: a process group that lets gloo's messages wait as they would on GPUs.

gloo finds a message by its tag, sends whatever has been asked for at once, and knows no streams. So what would wait for
ever on GPUs ends on processors. Here a communicator is a queue of its own thread, which stands for its stream:

    one after the other   what is asked of a communicator begins when all that was asked of it before is done
    both ends             a message is on its way once both of its ends have begun, and a collective once all have
    no tags               what one process sends another through a communicator arrives in the order in which it is sent
    one group, one queue  `init_process_group(device_id=...)` makes communicators with their groups ("eager mode"), and
                          all of a group, messages too, goes through one; only a coalesced batch goes together
    it may synchronise    memory that is allocated, or a kernel that is loaded, may make the host wait for all streams
                          of a device: with `synchronises`, it does at every mark of the clock

The stream on which a GPU computes is the process's own thread. That is no simplification: what is asked of NCCL begins
when its device has computed what it was given before, and what is computed after `Work.wait` when that is done.

Sources: PyTorch's `ProcessGroupNCCL.cpp` (`pointToPoint`, `eagerInit_`) and the notes at `batch_isend_irecv`; NCCL's
manual on several communicators per device; CUDA's on implicit synchronisation and on lazy loading.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, ClassVar

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d

from envs.running.op_by_op import op_step
from envs.running.partitioned import partitioned_step
from envs.running.pipelined import pipelined_step, replicated_step
from envs.running.processes import Process

NAME = "nccl_rules"


class Waiting(distributed._Work):  # type: ignore[misc,name-defined]
    """What was asked of a communicator."""

    limit: ClassVar[float]  # seconds after which it is said to wait for ever

    def __init__(self, what: str, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.what, self.done, self.error = what, Event(), ""
        self._tensors, self._future = list(tensors), torch.futures.Future[list[Tensor]]()

    def wait(self, timeout: object = None) -> bool:
        del timeout
        if not self.done.wait(Waiting.limit):
            raise RuntimeError(f"hangs: {self.what} was not done after {Waiting.limit:g} s")
        if self.error:
            raise RuntimeError(f"{self.what}: {self.error}")
        return True

    def is_completed(self) -> bool:
        return self.done.is_set()

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        return self._future

    def run(self, function: Callable[[], None]) -> None:
        """Do it, in the thread of the communicator."""
        try:
            function()
            self._future.set_result(self._tensors)
        except Exception as error:
            self.error = str(error)
            self._future.set_exception(error)  # type: ignore[arg-type]
        self.done.set()


class Communicator:
    """One thing after the other, in a thread."""

    all: ClassVar[weakref.WeakSet[Communicator]] = weakref.WeakSet()  # of this process

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], None], Waiting]] = SimpleQueue()
        self._latest: Waiting | None = None
        Thread(target=self._serve, daemon=True).start()
        Communicator.all.add(self)

    def ask(self, what: str, tensors: Sequence[Tensor], function: Callable[[], None]) -> Waiting:
        """Have it done after all that was asked for before."""
        self._latest = waiting = Waiting(what, tensors)
        self._asked.put((function, waiting))
        return waiting

    def synchronise(self) -> None:
        """Wait until all is done that was asked for."""
        if self._latest is not None:
            self._latest.wait()

    def _serve(self) -> None:
        while True:
            function, waiting = self._asked.get()
            waiting.run(function)


def synchronise() -> None:
    """Wait for all streams of the device."""
    for each in list(Communicator.all):
        each.synchronise()


class RulesGroup(distributed.ProcessGroup):
    """A group with one communicator, over a group of gloo's.

    What it has no method for fails, as the group of gloo's is not registered as its backend. PyTorch would otherwise
    ask gloo past the communicator, and does so with Python's lock held (`PyProcessGroup.hpp`), for which gloo's
    threads may wait while they hold the lock that it waits for.
    """

    def __init__(self, rank: int, size: int, gloo: Any) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # as Python has it
        self._rank_here, self._size_here, self._gloo, self._stream = rank, size, gloo, Communicator()
        self._sent, self._received = Counter[int](), Counter[int]()

    # ---- messages ----------------------------------------------------------------------------------------

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Waiting:
        del tag
        return self.batch([("send", tensors, peer)])

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Waiting:
        del tag
        return self.batch([("receive", tensors, peer)])

    def batch(self, messages: Sequence[tuple[str, list[Tensor], int]]) -> Waiting:
        """Messages that go together, as between `ncclGroupStart` and `ncclGroupEnd`."""
        numbered = []
        for what, tensors, peer in messages:
            counter = self._sent if what == "send" else self._received
            numbered.append((what, tensors, peer, counter[peer]))
            counter[peer] += 1

        def run() -> None:
            begun = [
                (self._gloo.send if what == "send" else self._gloo.recv)(tensors, peer, number)
                for what, tensors, peer, number in numbered
            ]
            for each in begun:
                each.wait()

        said = ", ".join(f"{what} {number} {self._rank_here} <-> {peer}" for what, _, peer, number in numbered)
        return self._stream.ask(said, [tensor for _, tensors, _, _ in numbered for tensor in tensors], run)

    # ---- collectives -------------------------------------------------------------------------------------

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Waiting:  # type: ignore[override]
        return self._collective("allreduce", tensors, tensors, opts)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Waiting:  # type: ignore[override]
        return self._collective("broadcast", tensors, tensors, opts)

    def allgather(  # type: ignore[override]
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> Waiting:
        return self._collective("allgather", outputs[0], outputs, inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any) -> Waiting:  # type: ignore[override]
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], given: list[Tensor], opts: Any) -> Waiting:  # type: ignore[override]
        return self._coalesced("_allgather_base", outputs, given, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any) -> Waiting:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], given: list[Tensor], opts: Any) -> Waiting:  # type: ignore[override]
        return self._coalesced("_reduce_scatter_base", outputs, given, opts)

    def all_to_all_single(
        self, output: Tensor, given: Tensor, outputs: list[int], inputs: list[int], opts: Any = None
    ) -> Waiting:
        return self._collective("alltoall_base", [output], output, given, outputs, inputs, opts)

    def barrier(self, opts: Any = None) -> Waiting:
        return self._collective("barrier", [], opts)

    def _collective(self, name: str, tensors: Sequence[Tensor], *given: Any) -> Waiting:
        given = given if given[-1] is not None else given[:-1]
        return self._stream.ask(name, tensors, lambda: getattr(self._gloo, name)(*given).wait())

    def _coalesced(self, name: str, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Waiting:
        def run() -> None:
            for output, given in zip(outputs, inputs, strict=True):
                getattr(self._gloo, name)(output, given, opts).wait()

        return self._stream.ask(name, outputs, run)

    # ---- what PyTorch asks -------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def rank(self) -> int:
        return self._rank_here

    def size(self) -> int:
        return self._size_here


def _made(store: Any, rank: int, size: int, timeout: Any) -> RulesGroup:
    return RulesGroup(rank, size, distributed.ProcessGroupGloo(store, rank, size, timeout))


def _batch(operations: list[distributed.P2POp]) -> list[Waiting]:
    """`batch_isend_irecv`, which NCCL coalesces."""
    group: Any = operations[0].group or distributed.group.WORLD
    return [group.batch([
        ("send" if each.op is distributed.isend else "receive", [each.tensor], each.group_peer) for each in operations
    ])]  # fmt: skip


@dataclass(frozen=True)
class Rules:
    """A job that lets all that a process does afterwards go by these rules."""

    synchronises: bool = True
    limit: float = 60.0
    """Seconds after which what waits is said to wait for ever: a busy machine may let a process wait for some."""

    def __call__(self, process: Process) -> None:
        Waiting.limit = self.limit
        distributed_c10d.Backend.register_backend(NAME, _made, devices=["cpu"])
        store = distributed_c10d._get_default_store()
        distributed.barrier()
        distributed.destroy_process_group()
        prefixed = distributed_c10d.PrefixStore(NAME, store)
        distributed.init_process_group(NAME, store=prefixed, rank=process.rank, world_size=process.size)
        distributed.batch_isend_irecv = _batch  # type: ignore[assignment]
        if self.synchronises:
            for module in (op_step, partitioned_step, pipelined_step, replicated_step):
                module.mark = _synchronising_mark  # type: ignore[attr-defined]


def _synchronising_mark(device: torch.device) -> float:
    """In place of a mark: the device waits for all that it was asked for."""
    del device
    synchronise()
    return time.perf_counter()
