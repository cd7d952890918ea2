"""User code: a function in a user's own file, given as "path/to/file.py:name", and its errors reported as the user's.

The file runs as `python file.py` runs it: it may import its neighbours. What it prints goes to stderr, because
standard output may be read by a program.
"""

import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from graphs.foundation.code_in_files import named_by_user
from graphs.foundation.errors import DoesNotFitError, InputError, UserCodeError

_PROJECT = Path(__file__).resolve().parents[2]
_OURS = [_PROJECT / each for each in ("graphs", "envs", "placers", "training", "evaluation", "placelab")]
_PREFIX = "_user_"  # of the names of users' files as modules
_STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
_neighbours: dict[str, Path] = {}  # modules that users' files imported from their own folder -> that folder


def user_callable(what: str) -> Callable[..., Any]:
    """The callable `name` of "path/to/file.py:name"; calling it raises UserCodeError for whatever its code raises.

    Raises InputError for a missing file or callable, UserCodeError for a file that cannot be imported.
    """
    text, _, name = what.rpartition(":")
    path = Path(text)
    if not text.endswith(".py") or not name:
        raise InputError(f"{what}: expected path/to/file.py:callable")
    return user_callables(path, [name])[0]


def user_callables(path: Path, names: Sequence[str]) -> list[Callable[..., Any]]:
    """Several of one file, which runs once, so that they share its classes. Raises as `user_callable`."""
    if not os.path.isfile(path):  # noqa: PTH113 - a name may be too long for a path
        raise InputError(f"{path}: no such Python file; expected path/to/file.py:callable")
    with user_code(path):
        module = _imported(path)
    return [_callable(module, path, name) for name in names]


def _callable(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    """The callable of one name in a user's file."""
    found = getattr(module, name, None)
    named_by_user(f"{path}:{name}")
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
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(folder) and is_users(file):
                _neighbours[name] = folder


def users_line(frames: Iterable[tuple[str, int | None]], *, libraries: bool = False) -> str:
    """The innermost of the (file, line)s that is in a user's own code, "path/to/file.py:12"; "" if there is none.

    With `libraries`, the innermost one in an installed package other than torch, if there is none in the user's own.
    """
    outside = [(file, line) for file, line in frames if file and not file.startswith("<")]  # such as "<string>"
    own = [(file, line) for file, line in outside if is_users(file)]
    if not own and libraries:
        own = [(file, line) for file, line in outside if is_installed(file) and "/torch/" not in file]
    if not own:
        return ""
    file, line = Path(own[-1][0]).resolve(), own[-1][1]
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{shown}:{line}" if line else str(shown)


def frames_of(error: BaseException) -> list[tuple[str, int | None]]:
    """The (file, line)s that an error passed through, from the outermost to the innermost."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    syntax = [(error.filename, error.lineno)] if isinstance(error, SyntaxError) and error.filename else []
    return [*frames, *syntax]


def _sentence(error: BaseException, path: Path) -> str:
    where = users_line(frames_of(error)) or str(path)
    if isinstance(error, SyntaxError):
        if "(unicode error)" in (error.msg or ""):
            return f"{where}: the file is not UTF-8 text"
        return f"{where}: {type(error).__name__}: {error.msg}"
    if isinstance(error, SystemExit):
        return f"{where}: the code ends the process here (SystemExit: {error.code}); it must return instead"
    said = f"{where}: {type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, ModuleNotFoundError) and error.name and "." not in error.name:
        said += "; install it into the environment of placelab, or do not import it"
    return said


def _imported(path: Path) -> ModuleType:
    """The file's module, run again each time: it may have been edited in between."""
    module = ModuleType(f"{_PREFIX}{path.stem}")
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # where dataclasses and typing look names up
    _neighbours[module.__name__] = path.resolve().parent
    code = compile(path.read_bytes(), module.__file__, "exec")
    exec(code, vars(module))
    return module


def has_users_class(value: object) -> bool:
    """Whether a value's class is of a user's own file, which other processes do not find by its name."""
    return type(value).__module__.startswith(_PREFIX)


def is_users(file: str) -> bool:
    """Whether a file is neither placelab's, nor Python's, nor of an installed package."""
    return _is_users(file if file.startswith(os.sep) else str(Path(file).absolute()))


@functools.cache  # a capture asks it of the files of all modules
def _is_users(file: str) -> bool:
    if is_installed(file):
        return False
    path = Path(file).resolve()  # of most modules that a capture imports there is no need for it
    return not any(path.is_relative_to(other) for other in (_STDLIB, *_OURS))


def is_installed(file: str) -> bool:
    """Whether a file or folder is of an installed package."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)
