"""User code: a function in a user's own file, given as "path/to/file.py:name", and its errors reported as the user's.

The file runs as `python file.py` runs it: it may import its neighbours. What it prints goes to stderr, because
standard output may be read by a program.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from graphs.errors import DoesNotFitError, InputError, UserCodeError

_PROJECT = Path(__file__).resolve().parent.parent
_FLOORS = [_PROJECT / floor for floor in ("graphs", "envs", "placers", "training", "evaluation")]
_LIBRARIES = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")]
_neighbours: dict[str, Path] = {}  # modules that users' files imported from their own folder -> that folder


def user_callable(what: str) -> Callable[..., Any]:
    """The callable `name` of "path/to/file.py:name"; calling it raises UserCodeError for whatever its code raises.

    Raises InputError for a missing file or callable, UserCodeError for a file that cannot be imported.
    """
    text, _, name = what.rpartition(":")
    path = Path(text)
    if not text.endswith(".py") or not name:
        raise InputError(f"{what}: expected path/to/file.py:callable")
    if not path.is_file():
        raise InputError(f"{path}: no such Python file; expected path/to/file.py:callable")
    with user_code(path):
        module = _imported(path)
    found = getattr(module, name, None)
    if not callable(found):
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        own = [key for key in own if getattr(vars(module)[key], "__module__", module.__name__) == module.__name__]
        raise InputError(f"{path}: no callable {name!r} in it; there are: {', '.join(own) or 'none'}")

    @functools.wraps(found)
    def called(*args: Any, **kwargs: Any) -> Any:
        with user_code(path):
            return found(*args, **kwargs)

    return called


@contextmanager
def user_code(path: Path) -> Iterator[None]:
    """Code of the user's file runs inside: it finds its neighbours, and what it raises becomes a UserCodeError.

    Our own errors pass, because a user's file may raise them on purpose; so does Ctrl-C.
    """
    try:
        with neighbours(path), redirect_stdout(sys.stderr):
            yield
    except (InputError, DoesNotFitError):
        raise
    except (Exception, SystemExit) as error:
        raise UserCodeError(_sentence(error, path)) from error


@contextmanager
def neighbours(path: Path) -> Iterator[None]:
    """Imports look into the folder of a user's file first, and never find modules of another user's folder."""
    folder = path.resolve().parent
    for name in [name for name, home in _neighbours.items() if home != folder]:
        sys.modules.pop(name, None)
        del _neighbours[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        for name in sys.modules.keys() - before:
            if _is_users(getattr(sys.modules[name], "__file__", None) or "", folder):
                _neighbours[name] = folder


def users_line(error: BaseException, path: Path) -> str:
    """Where the user's own code was when an error was raised, "path/to/file.py:12"; the file alone if nowhere in it.

    The innermost frame in the user's file, or in another file of its folder that is not an installed package.
    """
    folder = path.resolve().parent
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    own = [(Path(file).resolve(), line) for file, line in frames if _is_users(file, folder)]
    if not own:
        return str(path)
    file, line = own[-1]
    return f"{path.parent / file.relative_to(folder)}:{line}" if line else str(path)


def _sentence(error: BaseException, path: Path) -> str:
    where = users_line(error, path)
    if isinstance(error, SyntaxError):
        if "(unicode error)" in (error.msg or ""):
            return f"{where}: the file is not UTF-8 text"
        return f"{where}: {type(error).__name__}: {error.msg}"
    if isinstance(error, SystemExit):
        return f"{where}: the code ends the process here (SystemExit: {error.code}); it must return instead"
    return f"{where}: {type(error).__name__}: {error}".removesuffix(": ")


def _imported(path: Path) -> ModuleType:
    """The file's module, run again each time: it may have been edited in between."""
    module = ModuleType(f"_user_{path.stem}")
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # where dataclasses and typing look names up
    _neighbours[module.__name__] = path.resolve().parent
    code = compile(path.read_bytes(), module.__file__, "exec")
    exec(code, vars(module))
    return module


def _is_users(file: str, folder: Path) -> bool:
    if not file or file.startswith("<"):  # "<string>", "<frozen importlib._bootstrap>"
        return False
    path = Path(file).resolve()
    return path.is_relative_to(folder) and not any(path.is_relative_to(other) for other in (*_FLOORS, *_LIBRARIES))
