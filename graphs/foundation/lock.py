"""A lock on a file: one process at a time may add to it. A process that ends, however it does, holds it no longer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphs.foundation.errors import InputError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is another file in the same folder while it is held.

    Raises InputError, naming the process, if another one holds it, or if the folder cannot be written to.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        file = _acquired(lock)
    except BlockingIOError:
        holder = lock.read_text().strip() if lock.exists() else ""
        raise InputError(
            f"another process{f' ({holder})' if holder else ''} is writing {path}; wait until it ends, or name another "
            "file"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    with file:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _acquired(lock: Path) -> BinaryIO:
    """The open lock file, with the number of this process. Raises BlockingIOError if another holds it."""
    while True:
        file = lock.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.exists() and os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                file.truncate(0)
                file.write(str(os.getpid()).encode())
                file.flush()
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # its holder removed it in the meantime
