"""Files of the cache of captures: damaged, foreign and not writable ones, what is removed, and several processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphs.capture import cache
from graphs.capture.cache import captured, clear, kept, kept_bytes
from graphs.files.load import load_graph
from graphs.foundation.cache_folder import VARIABLE, cache_folder
from graphs.foundation.errors import InputError
from tests.drawn import examples
from tests.graphs.test_cache import ROOT, SMALL, SPEC, same
from tests.oracle.toys import random_graph


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))


def the_entry() -> Path:
    [file] = cache_folder("captures").glob("*.capture")
    return file


@given(data=st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100, 15))
def test_a_damaged_entry_is_none(data: st.DataObject) -> None:
    graph = random_graph(8, 3)
    captured(SPEC, lambda: graph, training=True)
    whole = the_entry().read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    the_entry().write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
    found = kept(SPEC, training=True)
    assert found is None or same(found, graph)
    captured(SPEC, lambda: graph, training=True)
    assert the_entry().read_bytes() == whole


@pytest.mark.parametrize("foreign", [b"", b"\x00" * 100, b"\x80", b"PK\x03\x04"])
def test_a_foreign_file_is_replaced(foreign: bytes) -> None:
    first = load_graph(SPEC)
    the_entry().write_bytes(foreign)
    assert same(load_graph(SPEC), first)
    assert the_entry().read_bytes() != foreign


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "folder"))
    assert same(load_graph(SPEC), load_graph(SPEC))
    assert kept_bytes() == []


def test_a_full_disk_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise InputError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(cache, "write_whole", full)
    assert same(load_graph(SPEC), load_graph(SPEC))


def test_without_a_home_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (VARIABLE, "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    graph = random_graph(5, 1)
    assert captured(SPEC, lambda: graph, training=True) is graph
    assert kept(SPEC, training=True) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=f"set {VARIABLE} to a folder"):
        kept_bytes()


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(200, 1)
    for age, spec in enumerate(SMALL):
        captured(spec, lambda: graph, training=True)
        newest = max(cache_folder("captures").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (time.time() - 100 + age,) * 2)
    assert kept(SMALL[0], training=True) is not None  # used now
    monkeypatch.setattr(cache, "MOST_BYTES", int(3.5 * max(kept_bytes())))
    captured(SMALL[0], lambda: graph, training=False)
    assert kept(SMALL[1], training=True) is None
    assert all(kept(spec, training=True) is not None for spec in (SMALL[0], SMALL[2]))
    assert sum(kept_bytes()) <= cache.MOST_BYTES


def test_clear_removes_all_and_what_was_left_unfinished() -> None:
    captured(SPEC, lambda: random_graph(5, 1), training=True)
    folder = cache_folder("captures")
    (folder / f".{the_entry().name}.123.unfinished").write_bytes(b"half")
    clear()
    assert list(folder.iterdir()) == []
    clear()


WRITER = f"""
import sys
from graphs.capture.cache import captured, kept
from tests.oracle.toys import random_graph
graph = random_graph(2000, 1)
print("ready", flush=True)
for _ in range(int(sys.argv[1])):
    captured({SPEC!r}, lambda: graph, training=True)
    found = kept({SPEC!r}, training=True)
    assert found is not None and found.fingerprint == graph.fingerprint
"""


@pytest.fixture
def writers() -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that write and read the same entry."""
    command = [sys.executable, "-c", WRITER]
    both = [
        subprocess.Popen([*command, times], cwd=ROOT, stdout=subprocess.PIPE, text=True) for times in ("30", "100000")
    ]
    yield both
    for each in both:
        each.kill()
        each.communicate()


def test_two_processes_write_and_read_at_once_and_one_is_killed(writers: list[subprocess.Popen[str]]) -> None:
    for each in writers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    assert writers[0].wait() == 0
    assert writers[1].poll() is None
    writers[1].send_signal(signal.SIGKILL)
    writers[1].wait()
    found = kept(SPEC, training=True)
    assert found is not None
    assert found.fingerprint == random_graph(2000, 1).fingerprint
