"""The runner of studies' pieces: done once, in one process or several, and what stops one stops all."""

import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from evaluation.studies import pieces as pieces_module
from evaluation.studies.command import run
from evaluation.studies.pieces import pieces_done
from evaluation.studies.splits.__main__ import study
from graphs.foundation.errors import InputError

STUDIES = Path(pieces_module.__file__).parent


@dataclass(frozen=True)
class Touching:
    """Makes a file, or does something else first."""

    path: Path
    first: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_done(self) -> bool:
        return self.path.exists()

    def do(self) -> None:
        if self.first == "raises":
            raise InputError("it cannot be done")
        if self.first == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.first == "sleeps":
            time.sleep(600)  # which no test waits for
        self.path.touch()


def names(pieces: list[Touching], workers: int) -> list[str]:
    return [piece.name for piece in pieces_done(pieces, workers)]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_done_comes_first_and_every_piece_once(workers: int, tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    found = names([Touching(tmp_path / name) for name in "abc"], workers)
    assert found[0] == "b"
    assert sorted(found) == ["a", "b", "c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_studies_take_the_address_of_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in STUDIES.glob("*/__main__.py"):
        assert "workers: int" not in file.read_text(), f"{file} takes no address"
    monkeypatch.setattr("sys.argv", ["splits", "--workers", "tcp://127.0.0.1:1", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        run(study, "splits", None)
    assert capsys.readouterr().err.startswith("no dask scheduler answers at 'tcp://127.0.0.1:1'; start one with")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_piece_that_fails_stops_the_others(workers: int, tmp_path: Path) -> None:
    pieces = [Touching(tmp_path / "a"), Touching(tmp_path / "b", "raises"), Touching(tmp_path / "c", "sleeps")]
    with pytest.raises(InputError, match="it cannot be done"):
        names(pieces, workers)


def test_a_piece_whose_process_is_killed_is_named(tmp_path: Path) -> None:
    pieces = [Touching(tmp_path / "a"), Touching(tmp_path / "b", "is killed")]
    with pytest.raises(InputError, match=r"b: its worker process ended each time .*; the same command resumes"):
        names(pieces, 2)
    assert (tmp_path / "a").exists(), "the others are done first"


def test_all_end_when_nobody_waits_for_them(tmp_path: Path) -> None:
    with closing(pieces_done([Touching(tmp_path / "a"), Touching(tmp_path / "b", "sleeps")], 2)) as found:
        assert next(found).name == "a"
