"""The one way in which functions are compiled here: numba, without the GIL, cached on disk.

Compiled functions count no references and allocate nothing: the caller provides their buffers. That is several times
faster when buffers are passed in named tuples, and numba refuses a function that would allocate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])

_HERE = Path(__file__).parent


def compiled(function: F) -> F:
    """Compile at the first call, or load what an earlier process compiled from the same sources.

    The sources are all files of this folder that import from `envs.simulation.compiled`, and all of the function's
    own folder if that is another.
    """
    dispatcher = njit(cache=True, nogil=True, _nrt=False)(function)
    # numba watches the function's own file alone: a cached caller would continue to run old code of another file
    dispatcher._cache._cache_file._source_stamp = _stamp(Path(function.__code__.co_filename).parent)
    return cast(F, dispatcher)


@cache
def _stamp(folder: Path) -> str:
    """A text that changes with the sources of functions in a folder."""
    sources = [
        text for path in sorted(_HERE.glob("*.py")) if b"envs.simulation.compiled" in (text := path.read_bytes())
    ]
    if folder != _HERE:
        sources += [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(sources)).hexdigest()


def inlined(function: F) -> F:
    """Compile into its callers: for the steps of a kernel, to which passing all the buffers would take longer."""
    return cast(F, njit(forceinline=True, nogil=True, _nrt=False)(function))
