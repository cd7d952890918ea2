"""The one way in which functions are compiled here: numba, without the GIL, kept on disk.

Compiled functions count no references and allocate nothing: the caller provides their buffers. That is several times
faster when buffers are passed in named tuples, and numba refuses a function that would allocate.

A function is compiled at its first call, which takes seconds and is said on stderr; later processes load it. Numba
keeps it in `__pycache__` next to its source or, where that cannot be written, in the user's cache folder; the
environment variable NUMBA_CACHE_DIR names another. Compiled code belongs to one tree of sources, so it is not in
`graphs.foundation.cache_folder`: it is removed with them, and needs no bound and no clearing. It is used for as long as
the text of the sources, Python, numba and the kind of processor are the same, whatever the time or owner of the files.
`python -m evaluation.commands.compile_all` compiles every function at once.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.extending import register_jitable

from graphs.foundation.files import locked, named_if_refused

F = TypeVar("F", bound=Callable[..., object])

KERNELS: list[Kernel] = []
"""All functions compiled by `compiled` whose modules have been imported."""

_HERE = Path(__file__).parent
_OPTIONS = {"nogil": True, "_nrt": False}
_INSIDE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # code that Python can call takes as long again
_compiling: list[Kernel] = []  # in this process, callers before what they call; guarded by numba's lock


def compiled(function: F) -> F:
    """Compile at the first call, or load what an earlier process compiled from the same sources.

    The sources are all files of this folder that import from `envs.simulation.compiled`, and all of the function's
    own folder if that is another.
    """
    return cast(F, _kernel(function, _OPTIONS))


def compiled_with_generator(function: F) -> F:
    """The same for what Python gives a NumPy generator to: numba takes a reference to it, and has to give it back."""
    return cast(F, _kernel(function, _OPTIONS | {"_nrt": True}))


def _kernel(function: Callable[..., object], options: dict[str, bool]) -> Kernel:
    kernel = Kernel(function, targetoptions={"nopython": True, **options})
    KERNELS.append(kernel)
    return kernel


def inlined(function: F) -> F:
    """Compile into its callers: for the steps of a kernel, to which passing all the buffers would take longer."""
    return cast(F, register_jitable(forceinline=True, **_INSIDE, **_OPTIONS)(function))


def subroutine(function: F) -> F:
    """Compile for compiled callers: for what is long, and called in several places, or seldom."""
    return cast(F, register_jitable(**_INSIDE, **_OPTIONS)(function))


class Kernel(CPUDispatcher):  # type: ignore[misc]  # numba has no types
    """A function that one process compiles, with a line on stderr, while others wait; then all of them load it."""

    def __init__(self, py_func: Callable[..., object], *args: object, **options: object) -> None:
        super().__init__(py_func, *args, **options)
        self._kept: _KeptCode | None = None
        with suppress(RuntimeError):  # numba finds no folder to write to: every process compiles for itself
            self._cache = self._kept = _KeptCode(py_func)
        self._folder = Path(self._kept.cache_path) if self._kept is not None else None

    def compile(self, sig: tuple[object, ...]) -> Any:
        """What numba calls for arguments of types that this process has not compiled or loaded it for.

        Raises InputError if the result cannot be written, as on a full disk.
        """
        with global_compiler_lock, ExitStack() as stack:
            if not self._is_known(sig):
                stack.enter_context(self._turn())
            if not self._is_known(sig):  # nor has another process compiled it in the meantime
                stack.enter_context(self._progress())
            return super().compile(sig)

    def get_call_template(self, args: Sequence[Any], kws: dict[str, Any]) -> Any:
        """What a compiled caller calls: the same function whether it gives a constant or not."""
        return super().get_call_template([numba.types.unliteral(each) for each in args], kws)

    def _is_known(self, sig: tuple[object, ...]) -> bool:
        return tuple(sig) in self.overloads or (self._kept is not None and self._kept.has(sig, self.targetctx))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock of its folder. Calls go down the floors, so no two processes wait for each other."""
        if self._folder is None or self._folder in [kernel._folder for kernel in _compiling]:
            yield
            return

        def on_wait() -> None:
            print(f"placelab: waiting while another process compiles {self.__module__}", file=sys.stderr)

        with locked(self._folder / "compiled", on_wait), named_if_refused(self._folder):
            yield

    @contextmanager
    def _progress(self) -> Iterator[None]:
        """Say that it is compiled, and how long that took; what it calls is not mentioned."""
        said = not _compiling
        begin = time.perf_counter()
        if said:
            print(f"placelab: compiling {self.__module__}, once ...", end=" ", file=sys.stderr, flush=True)
        _compiling.append(self)
        try:
            yield
        finally:
            _compiling.pop()
            if said:
                print(f"{time.perf_counter() - begin:.1f} s", file=sys.stderr)


class _KeptCode(FunctionCache):  # type: ignore[misc]  # numba has no types
    """What one function was compiled to, on disk, in files that have the stamp of the sources in their names.

    By itself numba watches the function's own file alone: a cached caller would continue to run old code of another
    file. It also writes an index before the code that the index names: who reads in between would get older code.
    """

    def __init__(self, py_func: Callable[..., object]) -> None:
        super().__init__(py_func)
        source = Path(py_func.__code__.co_filename)
        stamp = _stamp(source.parent)
        self._function = f"{source.stem}.{py_func.__qualname__}"
        self._files = f"{self._function}-{stamp[:16]}"
        self._cache_file = IndexDataCacheFile(self.cache_path, f"{self._files}.{sys.implementation.cache_tag}", stamp)

    def has(self, sig: tuple[object, ...], context: Any) -> bool:
        """Whether there is code for arguments of these types and this processor."""
        return self._index_key(sig, context.codegen()) in self._cache_file._load_index()

    def save_overload(self, sig: tuple[object, ...], data: object) -> None:
        """Keep compiled code, and remove what was compiled from other sources."""
        for file in Path(self.cache_path).glob(f"{self._function}-*.nb?"):
            if not file.name.startswith(self._files):
                file.unlink(missing_ok=True)
        super().save_overload(sig, data)


@cache
def _stamp(folder: Path) -> str:
    """A text that changes with numba, with the sources of functions in a folder, and with whether indices are checked.

    With NUMBA_BOUNDSCHECK=1 compiled code checks them, as `make checked` has it.
    """
    sources = [
        text for path in sorted(_HERE.glob("*.py")) if b"envs.simulation.compiled" in (text := path.read_bytes())
    ]
    if folder != _HERE:
        sources += [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    checked = b"boundscheck" if numba.config.BOUNDSCHECK else b""
    return hashlib.sha256(b"".join([numba.__version__.encode(), checked, *sources])).hexdigest()
