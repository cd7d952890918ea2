"""Pieces of a study are done once, and the command line of a study says what is wrong."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from evaluation.studies.pieces import do_pieces, load_pieces
from evaluation.studies.plan_kinds.__main__ import PlanKinds
from evaluation.studies.study import run
from graphs.foundation.errors import InputError


class Result(msgspec.Struct, frozen=True):
    name: str


def test_what_is_done_is_not_done_again_and_a_failure_stops_what_follows(tmp_path: Path) -> None:
    tried = []

    def work(name: str) -> Result:
        tried.append(name)
        if name == "b" and tried.count("b") == 1:
            raise InputError("it cannot be done")
        return Result(name)

    jobs = {tmp_path / "pieces" / f"{name}.json": partial(work, name) for name in "abc"}
    with pytest.raises(InputError, match="it cannot be done"):
        do_pieces(jobs)
    assert load_pieces(tmp_path, Result) == [Result("a")]
    do_pieces(jobs)
    assert tried == ["a", "b", "b", "c"]
    assert load_pieces(tmp_path, Result) == [Result(name) for name in "abc"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--runtime", "parallelise"], "unknown runtime 'parallelise'"),
        (["--write-only"], "no problem is measured yet with a budget of 2000"),
    ],
)
def test_a_command_line_that_is_wrong_ends_with_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["plan_kinds", *words, "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        run(PlanKinds)
    assert sentence in capsys.readouterr().err


def test_studies_take_the_address_of_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evaluation.studies.plan_kinds.__main__.MODELS", {"VGG": "vgg:layers=11,image=32,batch=8"})
    monkeypatch.setattr("evaluation.studies.plan_kinds.__main__.CLUSTERS", {"P100": {2: "p100:devices=2"}})
    monkeypatch.setattr("sys.argv", ["plan_kinds", "--workers", "tcp://127.0.0.1:1", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        run(PlanKinds)
    assert capsys.readouterr().err.startswith("no dask scheduler answers at 'tcp://127.0.0.1:1'; start one with")
