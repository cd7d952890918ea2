import time

import pytest

from graphs.foundation import progress as module
from graphs.foundation.progress import progress, progress_bar, waiting
from graphs.problem import Problem
from placers import annealing
from tests.oracle.toys import random_graph, toy_cluster


def test_where_stderr_is_no_terminal_progress_is_written_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    with progress_bar("training", total=3, unit="update", initial=1) as bar:
        for loss in (0.5, 0.25):
            bar.set_postfix_str(f"loss {loss}")
            bar.update()
    err = capsys.readouterr().err
    assert "\r" not in err
    begin, first, second = err.splitlines()
    assert begin.startswith("training: 1 of 3 updates")
    assert first.startswith("training: 2 of 3 updates")
    assert first.endswith("loss 0.5")
    assert second.startswith("training: 3 of 3 updates")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_of_uneven_units_no_time_is_left_to_say(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    for uneven in (False, True):
        with progress_bar("planning", total=3, unit="plan", uneven=uneven) as bar:
            bar.update(2)
        err = capsys.readouterr().err
        assert ("left" in err or "<" in err) != uneven
        assert "2 of 3 plans" in err or "2/3" in err or is_terminal


def test_short_work_writes_nothing_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress([1, 2], "counting", unit="number")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(progress(["a"], "reading", unit="letter")) == ["a"]
    err = capsys.readouterr().err
    assert "\r" in err
    assert "1/1" in err


def test_what_cannot_be_counted_says_how_long_it_has_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with waiting("capturing a"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(module, "EVERY", 0.01)
    with waiting("capturing b"):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("capturing b: 0 s so far\n")
    with waiting("running c") as tell:
        tell("step 3 has ended")
        time.sleep(0.2)
    assert "running c: 0 s so far, step 3 has ended\n" in capsys.readouterr().err
    with progress_bar("searching", total=1, unit="plan"), waiting("placing"):
        time.sleep(0.1)
    assert "placing" not in capsys.readouterr().err


def test_a_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    annealing.build().place(Problem(random_graph(8, seed=1), toy_cluster(2)), seed=0, budget=30)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("annealing: 0 of 30 simulations")
    assert lines[-1].startswith("annealing: 30 of 30 simulations")


def test_a_worker_process_shows_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr(module, "parent_process", lambda: "a parent")
    assert list(progress([1, 2], "counting", unit="number")) == [1, 2]
    with waiting("counting"):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""
