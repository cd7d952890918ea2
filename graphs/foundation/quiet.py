"""Quiet: what C libraries print about their own work is kept out of ours, which programs may read."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_C = ctypes.CDLL(None)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing that C code prints to standard output meanwhile arrives there; nor what other threads print."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        _C.fflush(None)  # C has a buffer of its own, which would be written later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
