"""CudaGraphs: what one function gives a GPU is captured, and given again by one launch, whatever it consists of.

What a graph reads and writes stays where it was when it was captured. All graphs of a GPU share a pool of memory: they
are launched in the order in which they were captured, so that each may take what an earlier one has left.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import torch

# What PyTorch says where `torch.cuda.set_sync_debug_mode` is "warn", of what waits for a device and once of itself.
_WAITS, _OF_MODE = "called a synchronizing CUDA operation", "Synchronization debug mode is a prototype feature"


class StepGraphs(Protocol):
    """Graphs of what places are given, as `CudaGraphs` makes them."""

    def takes(self, place: int) -> bool:
        """Whether what a place is given can be captured."""
        ...

    def waits(self, place: int, run: Callable[[], None]) -> bool:
        """Call a function, and say whether it waited for its device, which no graph does."""
        ...

    def capture(self, place: int, run: Callable[[], None]) -> Callable[[], None]:
        """What gives a place once more what a function gives it; the function itself need not compute anything."""
        ...

    def forget(self) -> None:
        """What is captured from now on has memory of its own."""
        ...


class CudaGraphs:
    """Those of `torch.cuda.CUDAGraph`; places are numbers in a list of devices."""

    def __init__(self, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._pools: dict[int, Any] = {}

    def takes(self, place: int) -> bool:
        """Whether it is a GPU of NVIDIA or AMD."""
        return self._devices[place].type == "cuda"

    def waits(self, place: int, run: Callable[[], None]) -> bool:
        """Call a function, and say whether PyTorch warned that it waited for a GPU."""
        if not self.takes(place):
            run()
            return False
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                run()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        for each in said:
            if not any(own in str(each.message) for own in (_WAITS, _OF_MODE)):
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return any(_WAITS in str(each.message) for each in said)

    def capture(self, place: int, run: Callable[[], None]) -> Callable[[], None]:
        """Capture what a function gives a GPU, in a stream that the captures of this GPU share."""
        if place not in self._streams:
            self._streams[place] = torch.cuda.Stream(self._devices[place])  # type: ignore[no-untyped-call]
        if place not in self._pools:
            self._pools[place] = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._devices[place])
        with torch.cuda.stream(self._streams[place]), _ended(graph):
            # that of others is not this thread's: they copy and wait meanwhile
            graph.capture_begin(pool=self._pools[place], capture_error_mode="thread_local")
            run()
        return graph.replay

    def forget(self) -> None:
        """A pool whose graphs are gone is not used again."""
        self._pools.clear()


@contextmanager
def _ended(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """The end of a capture, also of one that has failed, for which PyTorch would raise another error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # so it is of views, and of what has failed
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()


def graphs_for(devices: Sequence[torch.device]) -> StepGraphs | None:
    """Those for a list of devices; None if no one takes graphs."""
    graphs = CudaGraphs(devices)
    return graphs if any(map(graphs.takes, range(len(devices)))) else None
