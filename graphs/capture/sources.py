"""What a user's model is made from: the files that its code reads, the modules that it imports, the environment.

A captured graph stays valid only while all of this is unchanged. During capture an audit hook (PEP 578) records the
files that are opened. Installed packages count by name, version and time of installation; variables of the environment
count if the source names them. A capture that depends on anything else that can be noticed, such as a connection to a
server, is not kept. What cannot be noticed: chance, the time, the hardware, and whether a file exists that is not
opened.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from graphs.foundation.user_code import is_installed, is_users

# What these return is not decided by the user's files.
_ELSEWHERE = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "socket.connect",
    "sqlite3.connect", "subprocess.Popen", "urllib.Request",
}  # fmt: skip
_SYSTEMS = ("/dev/", "/proc/", "/sys/")  # what the system says of itself: it changes all the time
_MODULES = "*.py"  # in place of a file's name: which modules the folder has
_LARGE = 2**26  # bytes; a larger file, such as weights, counts by its size and time: it does not decide a graph
_TEXTS = (".py", ".cfg", ".ini", ".toml", ".yaml", ".yml")  # which may name variables of the environment
_WORD = re.compile(rb"[A-Za-z]\w+")


class Sources(msgspec.Struct, frozen=True):
    """What a model was made from."""

    files: dict[str, str]  # path -> digest of the content of the file or folder; "" where there is none
    environment: dict[str, str]  # the variables that the source names

    @classmethod
    def of(cls, paths: Iterable[str], environment: Mapping[str, str]) -> Sources:
        """What these files, folders and variables hold. Raises OSError for what cannot be read."""
        files, words = dict[str, str](), set[str]()
        for path in sorted(set(paths)):
            content = _content(path)
            files[path] = hashlib.sha256(content).hexdigest() if content is not None else ""
            if path.endswith(_TEXTS) and content is not None:
                words.update(word.decode() for word in _WORD.findall(content))
        return cls(files, {name: value for name, value in environment.items() if name in words})

    def unchanged(self) -> bool:
        """Whether all of it is as it was."""
        try:
            return Sources.of(self.files, os.environ) == self
        except OSError:
            return False


class Listener:
    """The files that were opened, and whether a capture may depend on anything but files."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.is_sure = True
        self.environment = dict(os.environ)  # before the user's code can change it

    def sources(self, folder: Path | None) -> Sources | None:
        """The sources of a model, in a user's folder if it is in one; None if it may depend on anything else.

        None, too, if a file has changed since this process began: the code that runs may be older than the file.
        """
        folders = {str(Path(path).absolute()) for path in sys.path if is_users(path)}
        modules = {str(Path(each) / _MODULES) for each in (folders if folder is None else {*folders, str(folder)})}
        paths = {path for path in (*self.paths, *_users_modules()) if not path.startswith(_SYSTEMS) and is_users(path)}
        try:
            if not self.is_sure or any(_changed_since(path, _BEGAN) for path in paths):
                return None
            return Sources.of(paths | modules, self.environment)
        except OSError:
            return None

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Take notice of an audit event."""
        if event in _ELSEWHERE:
            self.is_sure = False
        elif event == "open":
            path, _, flags = args
            if flags & 3 != os.O_WRONLY and not flags & os.O_CREAT:
                self._note(path)
        elif event in ("os.listdir", "os.scandir") and "importlib" not in sys._getframe(2).f_code.co_filename:
            self._note(args[0] or ".")  # but for importlib's search for modules

    def _note(self, path: Any) -> None:
        """A file or folder by its name, as text, bytes or a path."""
        with contextlib.suppress(TypeError):  # an open file's number
            name = str(Path(os.fsdecode(path)).absolute())
            if not name.endswith(".pyc"):
                self.paths.add(name)


_listeners: list[Listener] = []


@functools.cache
def _listen_for_good() -> None:
    """Add the interpreter's hook, once: there is no way to take it back."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        for listener in _listeners:
            try:
                listener.hear(event, args)
            except Exception:  # which would stop what is only listened to
                listener.is_sure = False

    sys.addaudithook(hook)


@contextmanager
def listening() -> Iterator[Listener]:
    """What Python opens inside is recorded."""
    _listen_for_good()
    listener = Listener()
    _listeners.append(listener)
    try:
        yield listener
    finally:
        _listeners.remove(listener)


def digest_of(files: Iterable[Path]) -> str:
    """A digest of the content of files, by their order."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def installed() -> str:
    """A digest that changes when a package is installed, removed or replaced."""
    found: list[tuple[str, int]] = []
    for folder in sys.path:
        if is_installed(folder) and Path(folder).is_dir():
            with os.scandir(folder) as entries:
                packages = [entry for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
                found += [(entry.name, entry.stat().st_mtime_ns) for entry in packages]
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def _users_modules() -> list[str]:
    """The files of the user's modules; without the script that runs, whose own code no other file asks for."""
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    files = {file for name, file in modules if name != "__main__" and isinstance(file, str)}
    return [str(Path(file).absolute()) for file in files if is_users(file)]


def _content(path: str) -> bytes | None:
    """What stands for the content of a file or folder; None if there is none. Raises OSError if it cannot be told."""
    place = Path(path)
    if place.name == _MODULES:
        return repr(sorted(_modules_in(place.parent))).encode()
    try:
        if place.is_dir():
            return repr(sorted(inside.name for inside in place.iterdir())).encode()
        if not place.exists():
            return None
        if not place.is_file():
            raise OSError(f"{path} is no regular file")
        found = place.stat()
        large = found.st_size > _LARGE
        return repr((found.st_size, found.st_mtime_ns)).encode() if large else place.read_bytes()
    except FileNotFoundError:
        return None


def _modules_in(folder: Path) -> list[str]:
    """Names of the modules and packages that an import finds in a folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [e.name for e in entries if e.name.endswith(".py") or (e.is_dir() and Path(e, "__init__.py").is_file())]


def _changed_since(path: str, when: float) -> bool:
    """Whether a file's content, name or rights have changed since then, in seconds since 1970."""
    try:
        return Path(path).stat().st_ctime > when  # which no one can set, unlike st_mtime
    except FileNotFoundError:
        return False


def _began() -> float:
    """When this process began, in seconds since 1970; where the system does not say, when this module was imported."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) + 1
        alive = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        alive = 0.0
    return time.time() - max(alive, 0.0)


_BEGAN = _began()
