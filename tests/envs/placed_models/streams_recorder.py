"""Streams that run nothing, and a recorder of what is given to them: is all of it in order, whatever they take?

Devices are places that the CPU stands for. Each operation is given to the compute stream of the place that its tensors
are in, or, of a copy, to the current streams. Streams have vector clocks (Fidge 1988; Mattern 1989), by which one thing
happens before another only if a stream, an event or both say so. Then it is checked of all memory that

- what reads or changes it happens after what has written it last,
- what changes it happens after all that has read it,
- once it is free, nothing of its own stream that may get it next can happen before what used it, unless the allocator
  was told (`record_stream`),
- no operation but a copy reads tensors of two places.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from envs.placed_models.places import EVERYWHERE
from envs.placed_models.side_streams import SideStreams
from tests.oracle.fake_step import is_sum_of_gradients

Clock = dict[int, int]  # by the number of a stream how much of it has happened before


class Stream:
    """A stream of a place."""

    def __init__(self, place: int, number: int) -> None:
        self.place, self.number, self.clock = place, number, Clock({number: 0})

    def tick(self) -> tuple[int, int]:
        """Give it something: the number of the stream, and how much it was given."""
        self.clock[self.number] += 1
        return self.number, self.clock[self.number]

    def knows(self, use: tuple[int, int]) -> bool:
        """Whether what it is given next happens after that."""
        number, time = use
        return self.clock.get(number, 0) >= time

    def wait_event(self, event: Event) -> None:
        """As of `torch.Stream`, and so the others."""
        for number, time in event.clock.items():
            self.clock[number] = max(self.clock.get(number, 0), time)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def record_event(self) -> Event:
        return Event(dict(self.clock))


@dataclass
class Event:
    """What has happened before it."""

    clock: Clock

    def query(self) -> bool:
        """Streams take as long as they like."""
        return False


@dataclass
class Memory:
    """A storage."""

    place: int
    stream: Stream  # of whose memory it is
    written: tuple[int, int]
    read: list[tuple[int, int]] = field(default_factory=list)
    recorded: set[int] = field(default_factory=set)  # numbers of the streams that the allocator was told


class Recorder(TorchDispatchMode):
    """Inside, all operations are recorded. `faults` says in words what is out of order."""

    def __init__(self, places: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.faults: list[str] = []
        self.copies = 0
        self._streams = list[Stream]()
        self.compute = [self.stream(place) for place in range(places)]
        self.entered = list[Stream]()  # while a tensor is copied
        self.referred: Callable[[], Iterable[Tensor]] = tuple  # gives the tensors that autograd may not change
        self._memory: dict[int, Memory] = {}

    def stream(self, place: int) -> Stream:
        """A new one."""
        self._streams.append(Stream(place, len(self._streams)))
        return self._streams[-1]

    def lies(self, tensor: Tensor, place: int) -> None:
        """Say where a tensor is that was made before."""
        self._new(tensor, place, self.compute[place])

    def place_of(self, tensor: Tensor) -> int:
        """Where a tensor is; EVERYWHERE if that was not said, nor follows from what it was made of."""
        memory = self._memory.get(_key(tensor))
        return EVERYWHERE if memory is None else memory.place

    def told(self, tensor: Tensor, stream: Stream) -> None:
        """What `record_stream` tells the allocator."""
        memory = self._memory.get(_key(tensor))
        if memory is not None:
            memory.recorded.add(stream.number)

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        writes = written(func, args, kwargs)
        if func is torch.ops.aten.add.Tensor and is_sum_of_gradients(*args):
            writes = [args[0]] if _key(args[0]) not in map(_key, self.referred()) else []
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        out = func(*args, **kwargs)
        made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        known = {_key(each) for each in given}
        if not writes and made and all(_key(each) in known for each in made):
            return out  # views
        self._record(str(func), given, writes, [each for each in made if _key(each) not in known])
        return out

    def _record(self, name: str, given: list[Tensor], writes: list[Tensor], made: list[Tensor]) -> None:
        memories = {_key(each): self._memory[_key(each)] for each in given if _key(each) in self._memory}
        places = {memory.place for memory in memories.values()}
        if self.entered:
            stream, into = self.entered
        elif not places:
            return
        else:
            stream = into = self.compute[min(places)]
        if len(places) > 1:
            self.faults.append(f"{name} reads of places {sorted(places)}")
        now, written = stream.tick(), {_key(each) for each in writes}
        for key, memory in memories.items():
            if not stream.knows(memory.written):
                self.faults.append(f"{name} on {stream.number} reads what {memory.written} may not have written")
            if key in written:
                if not all(stream.knows(each) for each in memory.read):
                    self.faults.append(f"{name} on {stream.number} changes what {memory.read} may not have read")
                memory.written, memory.read = now, []
            else:
                memory.read.append(now)
        if into is not stream:  # PyTorch lets each of the two wait for the other
            into.wait_stream(stream)
            now = into.tick()
        for each in made:
            self._new(each, into.place, into, now)

    def _new(self, tensor: Tensor, place: int, stream: Stream, now: tuple[int, int] | None = None) -> None:
        key = _key(tensor)
        if key not in self._memory:
            self._memory[key] = Memory(place, stream, now or stream.tick())
            weakref.finalize(tensor.untyped_storage(), self._free, key)

    def _free(self, key: int) -> None:
        memory = self._memory.pop(key)
        for use in [memory.written, *memory.read]:
            if not memory.stream.knows(use) and use[0] not in memory.recorded:
                self.faults.append(f"memory of {memory.stream.number} is free, and {use} may not have used it")


class RecordedStreams(SideStreams):
    """Side streams between places, which a recorder knows."""

    def __init__(self, devices: Sequence[torch.device], recorder: Recorder) -> None:
        super().__init__([torch.device("cuda", place) for place in range(len(devices))])
        self._accelerator = torch.device("cuda")
        self._recorder, recorder.referred = recorder, self._all_referred

    def _all_referred(self) -> Iterator[Tensor]:
        return (tensor for of_pass in self._referred.values() for tensor, _ in of_pass)

    def _new(self, place: int) -> torch.Stream:
        return cast(torch.Stream, self._recorder.stream(place))

    def _current(self, place: int) -> torch.Stream:
        return cast(torch.Stream, self._recorder.compute[place])

    @contextmanager
    def _entered(self, stream: Any) -> Iterator[None]:
        self._recorder.entered.append(stream)
        yield
        self._recorder.entered.pop()

    def _copied(self, tensor: Tensor, destination: int) -> Tensor:
        self._recorder.copies += 1
        return tensor.clone()

    def _keep(self, tensor: Tensor, stream: Any) -> None:
        self._recorder.told(tensor, stream)


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def written(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The arguments that an operation changes, as its schema says."""
    found = list[Tensor]()
    for position, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [each for each in tree_leaves(value) if isinstance(each, Tensor)]
    return found
