"""Items by an engine: each once with its result, however many workers; parts of them reach a process once."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from graphs.foundation.dask_engine import CONFIG, DaskEngine
from graphs.foundation.engine import Engine
from graphs.foundation.errors import InputError
from graphs.foundation.items import opened, results
from graphs.foundation.parcels import Sender, unpacked
from tests.forked import forked_items

LONG = 600.0  # seconds, which no test waits for


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Engine]:
    """Two processes, which start once for all tests that leave them alive."""
    with contextlib.ExitStack() as stack:
        with forked_items():
            engine = stack.enter_context(opened(2, (Large,)))
        yield engine


def test_every_item_comes_once_with_its_result(two_workers: Engine) -> None:
    with opened(1) as this_process:
        for engine in (this_process, two_workers):
            assert sorted(engine.results(abs, [-3, 1, 2])) == [(-3, 3), (1, 1), (2, 2)]
            assert sorted(engine.results(abs, [-1])) == [(-1, 1)], "an engine is for several calls"
            assert list(engine.results(abs, [])) == []


def test_what_an_item_raises_is_raised_and_ends_all() -> None:
    with forked_items(), closing(results(time.sleep, [LONG, 0.0, -1.0], 2)) as found:
        assert next(found) == (0.0, None)
        with pytest.raises(ValueError, match="must be non-negative"):
            next(found)


@dataclass(frozen=True)
class Large:
    """What several items share; it may hold another."""

    content: bytes
    inner: "Large | None" = None


def meet(here: Path, other: Path) -> None:
    """Wait for another item that is being done at the same time."""
    here.touch()
    for _ in range(int(100 * LONG)):
        if other.exists():
            return
        time.sleep(0.01)
    raise TimeoutError


@dataclass(frozen=True)
class Meeting:
    """An item that needs another one at its side."""

    here: Path
    other: Path
    part: Large | None = None

    def do(self) -> int:
        meet(self.here, self.other)
        return os.getpid()


def test_two_workers_do_two_items_at_a_time(two_workers: Engine, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    found = dict(two_workers.results(Meeting.do, [Meeting(a, b), Meeting(b, a)]))
    assert len({os.getpid(), *map(str, found.values())}) == 3


def test_a_free_worker_is_given_the_next_item_though_another_has_its_parts(two_workers: Engine, tmp_path: Path) -> None:
    a, b, part = tmp_path / "a", tmp_path / "b", Large(b"p" * 1000)
    for _ in range(20):  # items with the part seem to take no time
        ((_, first),) = two_workers.results(Meeting.do, [Meeting(tmp_path, tmp_path, part)])
    found = dict(two_workers.results(Meeting.do, [Meeting(a, b, part), Meeting(b, a, part)]))
    assert first in found.values()
    assert len(set(found.values())) == 2


@dataclass(frozen=True)
class KilledOnce(Meeting):
    """An item that ends its process the first time."""

    def do(self) -> int:
        if not self.here.exists():
            meet(self.here, self.other)
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()


def test_items_for_a_process_that_ended_are_done_when_all_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DaskEngine, "_free", lambda *_: "tcp://127.0.0.1:1")  # the next one has another address
    a, b = tmp_path / "a", tmp_path / "b"
    with forked_items():
        found = dict(results(KilledOnce.do, [KilledOnce(a, b), KilledOnce(b, a)], 2))
    assert all(isinstance(each, int) for each in found.values())
    assert len(found) == 2


def test_equal_parts_are_sent_once_and_are_one_object_where_they_arrive() -> None:
    sent: list[bytes] = []

    def send(data: bytes) -> bytes:
        sent.append(data)
        return data

    sender = Sender((Large,), send)
    graph = Large(b"g" * 1000)
    items = [(Large(b"p" * 1000, graph), seed) for seed in (0, 1)]  # equal, and not the same
    items += [(Large(b"q" * 1000, graph), 2)]
    parcels = [sender.parcel(item) for item in items]
    assert len(sent) == 3, "the graph and two different problems"
    assert all(len(parcel.data) < 500 for parcel in parcels)
    there = [unpacked(parcel.data, parcel.parts) for parcel in parcels]
    assert there == items
    assert there[0][0] is there[1][0]
    assert there[0][0].inner is there[2][0].inner


class Killer(threading.Thread):
    """Kills worker processes of this one as soon as they are there, so many of them, until the context is left."""

    def __init__(self, most: int) -> None:
        super().__init__(daemon=True)
        self.killed, self._most, self._known = 0, most, set(psutil.Process().children())
        self._ended = threading.Event()

    def __enter__(self) -> "Killer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while self.killed < self._most and not self._ended.wait(0.01):
            for each in set(psutil.Process().children()) - self._known:
                with contextlib.suppress(psutil.Error):
                    if any("spawn_main" in word for word in each.cmdline()) and self.killed < self._most:
                        each.kill()
                        self.killed += 1
                        self._known.add(each)


def test_a_process_that_is_killed_while_it_starts_is_started_again() -> None:
    with Killer(2) as killer, opened(2) as engine:
        assert sorted(engine.results(abs, [-3, 1, 2])) == [(-3, 3), (1, 1), (2, 2)]
    assert killer.killed == 2


def test_processes_that_are_killed_each_time_are_given_up() -> None:
    refused = pytest.raises(InputError, match="no worker process could begin: each was killed while it started")
    with Killer(1000), refused, opened(2):
        pass


@pytest.mark.slow  # starts processes again and again for as long as the limit is
def test_items_are_given_up_when_no_process_can_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIG, "distributed.scheduler.no-workers-timeout", "1s")
    a, b = tmp_path / "a", tmp_path / "b"
    refused = pytest.raises(InputError, match="all worker processes ended, and none could begin again")
    with opened(2) as engine, Killer(1000), refused:
        list(engine.results(KilledOnce.do, [KilledOnce(a, b), KilledOnce(b, a)]))
