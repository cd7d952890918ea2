"""Whatever a file holds, reading it gives a structure or one sentence."""

import gzip
import json
import os
import zlib
from pathlib import Path

import msgspec
import pytest

from graphs.formats.graph_file import load_graph_file
from graphs.foundation import documents
from graphs.foundation.documents import read_document, read_file
from graphs.foundation.errors import InputError


class Paper(msgspec.Struct):
    """A document to read."""

    version: int
    seconds: float = 0.0


class Binder(msgspec.Struct):
    """A document with entries by name."""

    version: int
    papers: dict[str, Paper]


def read(path: Path) -> Paper:
    return read_document(path, Paper, version=1, remedy="write one")


@pytest.mark.parametrize(
    ("name", "raw", "sentence"),
    [
        ("a.json", b"", "is damaged"),
        ("a.json", b"\xff\xfe", "is damaged"),
        ("a.json", b'{"version": "\xff"}', "is damaged"),
        ("a.json", b'{"version": 1, "seconds": NaN}', "is damaged"),
        ("a.json", b'{"version": 1, "seconds": ' + b"1" * 5000 + b"}", "is damaged: Integer value out of range"),
        ("a.json", b'{"version": 1, "seconds": 1' + b"0" * 400 + b"}", "seconds: number out of range"),
        ("a.json", b"[" * 100_000, "is damaged: its brackets are nested too deeply"),
        ("a.json", b'{"a":' * 100_000, "is damaged: its brackets are nested too deeply"),
        ("a.json", b'{"version": 1, "seconds": 1, "seconds": 2}', "'seconds' is given twice; keep one of them"),
        ("a.json", b'{"version": "1"}', "version: expected the number 1, got '1'"),
        ("a.json", b'{"version": null}', "version: expected the number 1, got None"),
        ("a.json", b'{"version": true}', "version: expected the number 1, got True"),
        ("a.json", b'{"version": 2}', "written as version 2, this placelab reads version 1; take a later placelab"),
        ("a.toml", b"version = 1\nseconds = " + b"1" * 5000, "is damaged"),
        ("a.toml", b"version = " + b"[" * 100_000, "is damaged: its brackets are nested too deeply"),
        ("a.toml", b"version = 1\n# \xff", "is damaged"),
        ("a.toml", b'version = "1"', "version: expected the number 1, got '1'"),
        ("a.json.gz", b"no gzip at all", "is damaged"),
        ("a.json.gz", b"", "is damaged"),
    ],
)
def test_what_is_no_such_document_is_refused_in_one_sentence(
    name: str, raw: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError) as refusal:
        read(tmp_path / name)
    assert str(refusal.value).startswith(str(tmp_path / name))
    assert sentence in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("wrong", range(5))
def test_the_entry_that_is_wrong_is_named(wrong: int, tmp_path: Path) -> None:
    papers = {f"p{number}": {"version": 1, "seconds": "x" if number == wrong else 1.0} for number in range(5)}
    (tmp_path / "a.json").write_text(json.dumps({"version": 1, "papers": papers}))
    with pytest.raises(InputError, match=rf"papers\.p{wrong}\.seconds: expected a number, got a text"):
        read_document(tmp_path / "a.json", Binder, version=1, remedy="write one")


def test_a_compressed_file_with_any_byte_damaged_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    packed = gzip.compress(b'{"version": 1, "seconds": 2.5}', mtime=0)
    broken_streams = 0
    for at in range(len(packed)):
        path.write_bytes(packed[:at] + bytes([packed[at] ^ 0xFF]) + packed[at + 1 :])
        try:
            assert read(path).seconds == 2.5
        except InputError as refusal:
            broken_streams += isinstance(refusal.__cause__, zlib.error)
    assert broken_streams  # these are neither of gzip's errors, nor the system's


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.graph.json.gz"
    path.write_bytes(gzip.compress(b" " * (3 * 2**20)))
    monkeypatch.setattr(documents, "MOST_BYTES", 2 * 2**20)
    with pytest.raises(InputError, match=r"a\.graph\.json\.gz holds more than .* GiB; decompress it first"):
        load_graph_file(path)
    monkeypatch.undo()
    assert len(read_file(path, "write one")) == 3 * 2**20


def test_what_is_no_file_is_refused_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match=r"pipe\.json cannot be read: it is no regular file"):
        read(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read(tmp_path)
    (tmp_path / "loop.json").symlink_to("loop.json")
    with pytest.raises(InputError, match=r"loop\.json cannot be read: Too many levels of symbolic links"):
        read(tmp_path / "loop.json")
    with pytest.raises(InputError, match="cannot be read: embedded null byte"):
        read(Path("a\0b.json"))
    with pytest.raises(InputError, match=r"none\.json does not exist; write one"):
        read(tmp_path / "none.json")


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="this system has no /dev/fd")
def test_a_pipe_of_the_shell_is_read() -> None:
    out, into = os.pipe()
    os.write(into, b'{"version": 1, "seconds": 2.5}')
    os.close(into)
    assert read(Path(f"/dev/fd/{out}")).seconds == 2.5
    os.close(out)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"version": 1}')
    (tmp_path / "a.json").chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        read(tmp_path / "a.json")
