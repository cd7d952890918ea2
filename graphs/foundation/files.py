"""Files that are written: each is replaced in one step, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from graphs.foundation.errors import InputError


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, all of it or nothing: whatever stops the writing leaves what was there before.

    Raises InputError, naming the file, if it cannot be written, as on a full disk.
    """
    encoded = content.encode() if isinstance(content, str) else content
    replace_whole(path, lambda unfinished: unfinished.write_bytes(encoded))


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """The same for what writes to a path by itself: `write` gets the name of a new file in the same folder.

    The file is new, with the permissions of any new file, and takes the place of `path` once it is complete; where
    `path` is a link, of what it leads to. What is no file, such as a pipe or /dev/stdout, is written to as it is.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
            write(path)
        else:
            write(unfinished)
            unfinished.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def check_writable(*files: Path | str | None, endings: tuple[str, ...] = (), inputs: Iterable[object] = ()) -> None:
    """Raise InputError for a file that cannot be written, before the work that its loss would waste.

    Its name must end in one of the endings, if any are given. It must be none of the inputs, which are files or
    whatever else a command is given, and no other of the files.
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
            raise InputError(
                f"cannot write {path}: {path.parent} is a file, not a folder"
                if is_file
                else f"cannot write {path}: the folder {path.parent} does not exist"
            )
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; name a file")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InputError(f"cannot write {path}: permission denied")


def check_readable(path: Path, remedy: str) -> None:
    """Raise InputError for a file that is not there; `remedy` says how one comes by it."""
    if not path.exists():
        raise InputError(f"{path} does not exist; {remedy}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
