"""Graphs on processors: operations of a function are recorded, and done again in the same memory, as CUDA graphs do.

What Python decides anew, or puts elsewhere, is not seen when they are done again. Nothing is computed while they are
captured. Memory that nobody holds any more when the next graph is captured is that graph's, and full of something else.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.envs.placed_models.streams_recorder import written

Bytes = NDArray[np.uint8]
NONSENSE = 255  # as bytes of a number: no number, or -1
WAITS = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape


class RecordedGraphs:
    """As `CudaGraphs`, of all places but some."""

    def __init__(self, *others: int) -> None:
        self.others = others
        self.captured = list[int]()  # places
        self.launched = list[int]()  # numbers of captures
        self.released = defaultdict[int, list[Bytes]](list)  # by the number of the capture after which it is free
        self.own = dict[int, Bytes]()  # memory that was made in captures, by its storage

    def takes(self, place: int) -> bool:
        return place not in self.others

    def waits(self, place: int, run: Callable[[], None]) -> bool:
        with (noted := Waits()):
            run()
        return noted.waits

    def capture(self, place: int, run: Callable[[], None]) -> Callable[[], None]:
        number, state = len(self.captured), torch.get_rng_state()
        self.captured.append(place)
        with Recording(self) as recording:
            run()
        torch.set_rng_state(state)
        for changed, before in reversed(recording.changed):
            changed.copy_(before)
        for memory in recording.made:
            memory.fill(NONSENSE)
        return partial(self._launch, number, recording.calls)

    def forget(self) -> None:
        self.launched.clear()
        self.captured.clear()
        self.released.clear()

    def _launch(self, number: int, calls: list[Recorded]) -> None:
        self.launched.append(number)
        for memory in self.released[number - 1]:
            memory.fill(NONSENSE)
        for call in calls:
            again = _tensors(call.function(*call.args, **call.kwargs))
            for there, made in zip(call.outputs, again, strict=True):
                if there is not None:
                    there.copy_(made)


@dataclass
class Recorded:
    """An operation, with what it reads and writes."""

    function: Any
    args: Any
    kwargs: Any
    outputs: list[Tensor | None]  # None for a view of what it reads


class Recording(TorchDispatchMode):
    """Operations that are called inside."""

    def __init__(self, graphs: RecordedGraphs) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = list[Recorded]()
        self.changed = list[tuple[Tensor, Tensor]]()  # what was changed in place, and what it was before
        self.made = list[Bytes]()
        self._graphs = graphs

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = tree_map(self._alias, (args, kwargs))
        self.changed += [(self._alias(each), each.clone()) for each in written(func, args, kwargs)]
        known = {_key(each) for each in _tensors((args, kwargs))}
        outputs = list[Tensor | None]()

        def own(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            outputs.append(None if _key(value) in known else self._alias(value := self._put(value)))
            return value

        out = tree_map(own, func(*args, **kwargs))
        self.calls.append(Recorded(func, given[0], given[1], outputs))
        return out

    def _put(self, tensor: Tensor) -> Tensor:
        """The same in memory that stays when nobody holds it."""
        memory = np.zeros(max(tensor.untyped_storage().nbytes(), 16), np.uint8)
        there = _in(memory, tensor).copy_(tensor)
        key = _key(there)
        self._graphs.own[key] = memory
        self.made.append(memory)
        weakref.finalize(there.untyped_storage(), self._release, key)
        return there

    def _release(self, key: int) -> None:
        graphs = self._graphs
        graphs.released[len(graphs.captured) - 1].append(graphs.own.pop(key))

    def _alias(self, value: Any) -> Any:
        """A tensor of the same memory, which it keeps if the other one is given another."""
        if not isinstance(value, Tensor):
            return value
        memory = self._graphs.own.get(_key(value))
        return value.detach() if memory is None else _in(memory, value)


class Waits(TorchDispatchMode):
    """Whether an operation inside has a result whose size or value the host has to know."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits = False

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.waits |= any(tag in func.tags for tag in WAITS)
        return func(*args, **(kwargs or {}))


def _in(memory: Bytes, like: Tensor) -> Tensor:
    whole = torch.from_numpy(memory)[: like.untyped_storage().nbytes()].view(like.dtype)
    return whole.as_strided(like.size(), like.stride(), like.storage_offset())


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]
