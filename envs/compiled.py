"""The one way in which functions are compiled here: numba, without the GIL, cached on disk.

Compiled functions count no references and allocate nothing: their buffers come from the caller. That is several
times faster when buffers travel in named tuples, and numba refuses a function that would allocate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])

_SOURCES = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
_STAMP = hashlib.sha256(b"".join(text for text in _SOURCES if b"envs.compiled" in text)).hexdigest()


def compiled(function: F) -> F:
    """Compile at the first call, or load what an earlier process compiled from the same sources.

    The sources are the function's own file and all files of this folder that import from `envs.compiled`.
    """
    dispatcher = njit(cache=True, nogil=True, _nrt=False)(function)
    # numba watches the function's own file alone: a cached caller would go on running old code of another file
    own = Path(function.__code__.co_filename).read_bytes()
    dispatcher._cache._cache_file._source_stamp = _STAMP + hashlib.sha256(own).hexdigest()
    return cast(F, dispatcher)


def inlined(function: F) -> F:
    """Compile into its callers: for the steps of a kernel, to which passing all the buffers would take longer."""
    return cast(F, njit(forceinline=True, nogil=True, _nrt=False)(function))
