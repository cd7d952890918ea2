"""A user's file runs as `python file.py` runs it, and its errors are reported as the user's."""

import inspect
import sys
from pathlib import Path

import pytest

from graphs.foundation.errors import DoesNotFitError, InputError, UserCodeError
from graphs.foundation.user_code import user_callable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, so that paths are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reported(what: str) -> str:
    """The message of the error."""
    with pytest.raises(UserCodeError) as caught:
        user_callable(what)()
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_callable_is_called_with_what_it_is_given(folder: Path) -> None:
    (folder / "m.py").write_text("def f(a, *, b: int = 2):\n    return a, b\n")
    function = user_callable("m.py:f")
    assert function(1, b=3) == (1, 3)
    assert list(inspect.signature(function).parameters) == ["a", "b"]


def test_an_edited_file_is_read_again(folder: Path) -> None:
    for number in range(3):  # of the same length, within a second
        (folder / "m.py").write_text(f"def f(): return {number}\n")
        assert user_callable("m.py:f")() == number
    assert [path.name for path in folder.iterdir()] == ["m.py"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("\n\ndef f():\n    return torch.zeros(2)\n", "m.py:4: NameError: name 'torch' is not defined"),
        (
            "import nothing_of_that_name\n",
            "m.py:1: ModuleNotFoundError: No module named 'nothing_of_that_name'; install",
        ),
        ("import json\ndef f():\n\n    json.loads('{')\n", "m.py:4: JSONDecodeError: Expecting property name"),
        ("def f():\n    raise KeyError\n", "m.py:2: KeyError"),
        ("def f(:\n    pass\n", "m.py:1: SyntaxError: invalid syntax"),
        ("x = 1\n  y = 2\n", "m.py:2: IndentationError: unexpected indent"),
        ("x = '\xe9'\n", "m.py:1: the file is not UTF-8 text"),
        ("x = 1\0\n", "m.py: SyntaxError: source code string cannot contain null bytes"),
        ("import sys\ndef f():\n    sys.exit(5)\n", "m.py:3: the code ends the process here (SystemExit: 5)"),
        ("raise SystemExit\n", "m.py:1: the code ends the process here (SystemExit: None)"),
        ("def f(needed): ...\n", "m.py: TypeError: f() missing 1 required positional argument"),
        ("def f(): f()\n", "m.py:1: RecursionError: maximum recursion depth exceeded"),
        ("def f():\n    exec('1/0')\n", "m.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_is_reported_with_its_line(folder: Path, source: str, sentence: str) -> None:
    (folder / "m.py").write_bytes(source.encode("latin-1"))
    assert reported("m.py:f").startswith(sentence)


def test_a_neighbours_error_is_reported_with_the_neighbours_line(folder: Path) -> None:
    (folder / "sub" / "nets").mkdir(parents=True)
    (folder / "sub" / "m.py").write_text("def f():\n    from nets.net import made\n    return made()\n")
    (folder / "sub" / "nets" / "net.py").write_text("def made():\n    return 1 / 0\n")
    assert reported("sub/m.py:f") == "sub/nets/net.py:2: ZeroDivisionError: division by zero"
    (folder / "sub" / "m.py").write_text("from nets.bad import made\n")
    (folder / "sub" / "nets" / "bad.py").write_text("\nmade = = 3\n")
    assert reported("sub/m.py:f") == "sub/nets/bad.py:2: SyntaxError: invalid syntax"


def test_each_file_finds_its_own_neighbours(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "net_beside.py").write_text(f"name = {name!r}\n")
        (folder / name / "m.py").write_text(
            "from net_beside import name\ndef f():\n    import net_beside\n    return name, net_beside.name\n"
        )
    path = list(sys.path)
    one, two = user_callable("one/m.py:f"), user_callable("two/m.py:f")
    assert [one(), two(), one()] == [("one", "one"), ("two", "two"), ("one", "one")]
    assert sys.path == path


def test_what_it_prints_is_kept_out_of_standard_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "m.py").write_text("print('importing')\ndef f():\n    print('calling')\n")
    user_callable("m.py:f")()
    assert capsys.readouterr() == ("", "importing\ncalling\n")


@pytest.mark.parametrize("error", [InputError, DoesNotFitError])
def test_an_error_of_ours_that_it_raises_on_purpose_passes(folder: Path, error: type[Exception]) -> None:
    (folder / "m.py").write_text(
        f"from graphs.foundation.errors import {error.__name__} as E\ndef f():\n    raise E('its own')\n"
    )
    with pytest.raises(error, match=r"^its own$") as caught:
        user_callable("m.py:f")()
    assert not isinstance(caught.value, UserCodeError)


def test_ctrl_c_passes(folder: Path) -> None:
    (folder / "m.py").write_text("def f():\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        user_callable("m.py:f")()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("m.py", "^m.py: expected path/to/file.py:callable$"),
        ("m.py:", "^m.py:: expected path/to/file.py:callable$"),
        ("nowhere.py:f", "^nowhere.py: no such Python file; expected path/to/file.py:callable$"),
        ("m.py:g", "^m.py: no callable 'g' in it; there are: f, A$"),
        ("m.py:x", "^m.py: no callable 'x' in it; there are: f, A$"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, what: str, sentence: str) -> None:
    (folder / "m.py").write_text("from json import loads\nx = 1\ndef f(): ...\nclass A: ...\ndef _g(): ...\n")
    with pytest.raises(InputError, match=sentence):
        user_callable(what)
