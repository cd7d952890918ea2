"""Side streams: copies between accelerators overlap with what both of them compute.

`tensor.to(device)` copies between the current streams of two devices: it waits for what either was given before, and
both go on when it has ended. So a copy is issued while two streams of its own are the current ones:

    compute, source            a ─┐             b             reads and writes on
    side, source                  └─ waits, copies ─┐
    side, destination                               └─ event ─┐
    compute, destination       c             d                └─ waits, e    e reads the copy

A copy waits for what its source was given before, and for earlier copies from there to its destination; only its
readers wait for it. PyTorch's allocator learns with `record_stream` of streams in which memory is used that is not of
them. Nothing keeps the source from being changed in place before it has been read. So code that changes tensors
waits for the copies that have left their device: `settle`. The sums of autograd are changed in place if nobody
else refers to them: what a backward pass sends is referred to until that has been read, or the pass ends.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from envs.placed_models.places import EVERYWHERE


class PendingCopy(NamedTuple):
    """A tensor that is on its way."""

    there: Tensor
    place: int
    event: torch.Event  # it is there


class SideStreams:
    """Streams from devices to others, made as they are needed; places are numbers in a list of devices."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        """The list may become longer later."""
        self._devices, self._accelerator = devices, torch.accelerator.current_accelerator()
        self._streams: dict[tuple[int, int], tuple[torch.Stream, torch.Stream]] = {}
        self._left: dict[int, dict[int, tuple[torch.Stream, int]]] = {}  # by source and destination, with the last copy
        self._copies = 0  # so far
        self._settled: dict[tuple[int, torch.Stream], int] = {}  # of a place and its stream, after how many copies
        self._lock = threading.Lock()  # each device has a thread in a backward pass
        self._referred: dict[int, list[tuple[Tensor, torch.Event]]] = {}  # by the backward pass that has sent it

    def __reduce__(self) -> tuple[type[SideStreams], tuple[Sequence[torch.device]]]:
        return type(self), (self._devices,)  # of a model that is saved

    def join(self, source: int, destination: int) -> bool:
        """Whether there are streams from one place to another: for both stand accelerators, be it the same one."""
        if self._accelerator is None or source in (EVERYWHERE, destination):
            return False
        return self._devices[source].type == self._devices[destination].type == self._accelerator.type

    def send(self, tensor: Tensor, source: int, destination: int) -> PendingCopy:
        """Issue a copy of what the current stream of its source makes of a tensor."""
        leaves, arrives = self._between(source, destination)
        leaves.wait_stream(self._current(source))
        with self._entered(leaves), self._entered(arrives):
            there = self._copied(tensor, destination)
        self._keep(tensor, leaves)
        with self._lock:
            self._copies += 1
            self._left.setdefault(source, {})[destination] = leaves, self._copies
        return PendingCopy(there, destination, arrives.record_event())

    def receive(self, sent: PendingCopy) -> Tensor:
        """The copy, for what the current stream of its device is given from now on."""
        stream = self._current(sent.place)
        stream.wait_event(sent.event)
        self._keep(sent.there, stream)
        return sent.there

    def has_left(self, place: int) -> bool:
        """Whether anything was ever sent from a place."""
        return place in self._left

    def settle(self, place: int) -> None:
        """Let what the current stream of a place is given from now on wait until what has left it has been read."""
        if not self.has_left(place):
            return
        current = self._current(place)  # that of this thread, which does not wait for what another one has settled
        with self._lock:
            before, self._settled[place, current] = self._settled.get((place, current), 0), self._copies
            left = [stream for stream, copy in self._left[place].values() if copy > before]
        for stream in left:
            current.wait_stream(stream)

    def settle_all(self) -> None:
        """The same of all places."""
        for place in list(self._left):
            self.settle(place)

    def refer(self, tensor: Tensor, event: torch.Event) -> None:
        """Refer to a tensor that a backward pass has sent until it has been read, or the pass ends and waits for that.

        Called by a node of the pass.
        """
        number = torch._C._current_graph_task_id()
        with self._lock:
            if number not in self._referred:
                self._referred[number] = []
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end(number))
            for referred in self._referred.values():  # a pass that has failed never ends
                referred[:] = [each for each in referred if not each[1].query()]
            self._referred[number].append((tensor, event))

    def _end(self, number: int) -> None:
        self.settle_all()
        with self._lock:
            self._referred.pop(number, None)

    def _between(self, source: int, destination: int) -> tuple[torch.Stream, torch.Stream]:
        """The stream of the source and that of the destination: one, where one device stands for both."""
        if (source, destination) not in self._streams:
            leaves, is_one = self._new(source), self._devices[source] == self._devices[destination]
            self._streams[source, destination] = leaves, leaves if is_one else self._new(destination)
        return self._streams[source, destination]

    # ---- what PyTorch does, and tests in its place -----------------------------------------------------------

    def _new(self, place: int) -> torch.Stream:
        return torch.Stream(self._devices[place])

    def _current(self, place: int) -> torch.Stream:
        return torch.accelerator.current_stream(self._devices[place])

    def _entered(self, stream: torch.Stream) -> AbstractContextManager[object]:
        return stream

    def _copied(self, tensor: Tensor, destination: int) -> Tensor:
        device = self._devices[destination]
        return tensor.clone() if tensor.device == device else tensor.to(device, non_blocking=True)

    def _keep(self, tensor: Tensor, stream: torch.Stream) -> None:
        tensor.record_stream(stream)
