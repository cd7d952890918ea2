"""A file is replaced in one step, or not at all."""

import os
from pathlib import Path

import pytest

from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable, replace_whole, write_whole


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


def test_a_link_stays_a_link_and_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "a.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to(tmp_path / "there" / "a.txt")
    write_whole(tmp_path / "link.txt", "after")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "there" / "a.txt").read_text() == "after"
    write_whole(Path("/dev/null"), "nowhere")
    assert Path("/dev/null").is_char_device()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(InputError, match=r"^cannot write /dev/full: No space left on device$"):
        write_whole(Path("/dev/full"), "x" * 100_000)
