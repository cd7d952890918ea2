import pytest

from graphs.foundation import progress as module
from graphs.foundation.progress import progress, progress_bar


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


def test_short_work_writes_nothing_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress([1, 2], "counting", unit="number")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert list(progress(["a"], "reading", unit="letter")) == ["a"]
    err = capsys.readouterr().err
    assert "\r" in err
    assert "1/1" in err
