"""A file is replaced in one step, or not at all."""

import os
from pathlib import Path

import pytest

from graphs.errors import InputError
from graphs.files import check_writable, replace_whole, write_whole


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_text() == "two"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_what_stops_the_writing_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")

    def fails(unfinished: Path) -> None:
        unfinished.write_text("half")
        raise OSError(28, os.strerror(28))

    with pytest.raises(InputError, match=r"cannot write .*a\.txt: No space left on device"):
        replace_whole(path, fails)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    check_writable(None, tmp_path / "new.json", str(tmp_path / "other.json"))
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        check_writable(tmp_path / "nowhere" / "a.json")
    with pytest.raises(InputError, match="it is a folder"):
        check_writable(tmp_path)
