"""Files that are written: replaced in one step or not at all, checked before long work, locked while they grow."""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphs.foundation.errors import InputError


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, all of it or nothing: whatever stops the writing leaves what was there before.

    Raises InputError, naming the file, if it cannot be written, as on a full disk.
    """
    encoded = content.encode() if isinstance(content, str) else content
    replace_whole(path, lambda unfinished: unfinished.write_bytes(encoded))


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """The same for what writes to a path by itself: `write` gets the name of a new file in the same folder.

    The new file replaces `path` once it is complete; where `path` is a link, the file that it leads to. What is no
    file, such as a pipe or /dev/stdout, is written to directly.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        with named_if_refused(path):
            if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
                write(path)
            else:
                unfinished.unlink(missing_ok=True)  # it may be a link to another file
                write(unfinished)
                unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def named_if_refused(path: Path) -> Iterator[None]:
    """Raise InputError, naming the file, where the system refuses to write inside, as on a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def check_writable(*files: Path | str | None, endings: tuple[str, ...] = (), inputs: Iterable[object] = ()) -> None:
    """Raise InputError for a file that cannot be written, before the long work whose result it is for.

    Its name must end in one of the endings, if any are given. It must differ from the inputs, which are files or
    anything else that a command is given, and from the other files.
    """
    taken = {Path(each).resolve() for each in inputs if isinstance(each, str | Path) and "\0" not in str(each)}
    for file in files:
        if file is None:
            continue
        path = Path(file)
        if path.resolve() in taken:
            raise InputError(f"cannot write {path}: the same command reads or writes it already; name another file")
        taken.add(path.resolve())
        if endings and not path.name.endswith(endings):
            raise InputError(f"cannot write {path}: its name must end in {' or '.join(endings)}")
        if not path.parent.is_dir():
            is_file = path.parent.exists()
            why = f"{path.parent} is a file, not a folder" if is_file else f"the folder {path.parent} does not exist"
            raise InputError(f"cannot write {path}: {why}")
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; name a file")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InputError(f"cannot write {path}: permission denied")


def check_links(path: Path) -> None:
    """Raise InputError for a link that leads out of a folder: whoever sent the folder says what is read or overwritten.

    Of a file it is that of its own name. The folder itself may be a link.
    """
    home = Path(os.path.realpath(path if path.is_dir() else path.parent))
    inside = [Path(at, name) for at, *names in os.walk(home) for each in names for name in each]
    for link in inside if path.is_dir() else [home / path.name]:
        if link.is_symlink() and not (target := Path(os.path.realpath(link))).is_relative_to(home):
            raise InputError(f"{link} is a link to {target}, out of its folder; put a copy in its place, or remove it")


def check_readable(path: Path, remedy: str) -> None:
    """Raise InputError for a file that is not there; `remedy` says how to get it."""
    if not path.exists():
        raise InputError(f"{path} does not exist; {remedy}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")


@contextmanager
def locked(path: Path, on_wait: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the lock of a file, so that one process at a time adds to it; the lock is another file in its folder.

    A process that ends, however it does, holds it no longer. If another one holds it, `on_wait` is called, and this one
    waits; without `on_wait` that raises InputError, naming the process.

    Raises InputError as well if the folder cannot be written to.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = _acquired(lock, on_wait)
    except BlockingIOError:
        holder = lock.read_text().strip() if lock.exists() else ""
        other = f"another process ({holder})" if holder else "another process"
        raise InputError(f"{other} is writing {path}; wait until it ends, or write elsewhere") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _acquired(lock: Path, on_wait: Callable[[], object] | None) -> BinaryIO:
    """The open lock file, with the number of this process. Raises BlockingIOError if another holds it."""
    while True:
        # not through a link: the lock is emptied, and the folder may be anybody's
        file = os.fdopen(os.open(lock, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666), "a+b")
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if on_wait is None:
                    raise
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            if lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                file.truncate(0)
                file.write(str(os.getpid()).encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its holder removed it in the meantime
