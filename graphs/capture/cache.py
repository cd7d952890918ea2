"""The cache of captures: graphs of families and of users' models, kept in the user's cache folder.

A graph is found again by the text that names it, the source of placelab's families and capture, and the versions of
Python and torch. For a function in a user's file, all that its code was made from must be as it was
(`graphs.capture.sources`), and a line on stderr says that the graph was not captured again. An entry that cannot be
read is captured again and replaced; a folder that cannot be written keeps nothing. Finding a graph imports no torch.
"""

import contextlib
import functools
import hashlib
import logging
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from graphs.capture.sources import Sources, digest_of, installed, listening
from graphs.foundation import by_name
from graphs.foundation.cache_folder import cache_folder
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.op_graph import OpGraph

SWITCH = "PLACELAB_NO_CACHE"  # a variable, so that processes that are started meanwhile know it, too
MOST_BYTES = 2**30  # of all entries: some hundred graphs of 50,000 ops, or all graphs of all families ten times
KIND, ENDING = "captures", ".capture"  # the folder of the cache, and the end of its files

_log = logging.getLogger("placelab")

_FAMILIES = "graphs.families"
_GRAPHS = Path(__file__).resolve().parents[1]
_DECIDING = [
    f"{folder}*.py"
    for folder in (
        "",
        "algorithms/",
        "capture/",
        "families/",
        "foundation/",
        "notation/",
        "op_graph/",
        "op_groups/",
        "transforms/",
    )
]
_LEFT_OVER = 3600.0  # seconds after which a file that was not written to its end never will be


class CachedCapture(msgspec.Struct, frozen=True, tag_field="schema", tag="placelab.captured"):
    """What a file of the cache holds."""

    what: str  # the text that names the model
    sources: Sources | None  # of a user's model
    graph: bytes  # an OpGraph as msgpack, compressed, with the checksum of zlib
    said: tuple[str, ...] = ()  # what the capture warned of, which is said each time


@contextmanager
def without_cache() -> Iterator[None]:
    """Inside, and in processes that are started inside, every model is captured again; that replaces what was kept."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1"
    try:
        yield
    finally:
        del os.environ[SWITCH]
        if before is not None:
            os.environ[SWITCH] = before


def kept(what: str, *, training: bool, with_law: bool = False, precision: str = "auto") -> OpGraph | None:
    """The graph of a family spec or of "file.py:callable", if it was captured before and nothing has changed since.

    One `with_law` was captured with two batches (`graphs.capture.second_batch`), and is an entry of its own.
    """
    file = _file(what, training, with_law, precision)
    if file is None or os.environ.get(SWITCH):
        return None
    try:
        entry = _entries.decode(file.read_bytes())
        if entry.sources is not None and not entry.sources.unchanged():
            return None
        graph = _graphs.decode(zlib.decompress(entry.graph))
    except Exception:  # a file that is missing, cut short or another's: whatever reading it raises, it is no graph
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # the least recently used go first
    for sentence in entry.said:
        _log.warning("%s", sentence)
    if entry.sources is not None:
        from tqdm import tqdm  # imported late: most graphs are of families

        tqdm.write(f"{graph.name}: from the cache of captures; --no-cache captures it again", file=sys.stderr)
    return graph


def is_kept(what: str) -> bool:
    """Whether a family spec was captured before, so that nothing is wrong with it."""
    return any(file is not None and file.is_file() for file in (_file(what, training) for training in (True, False)))


@contextmanager
def warned() -> Iterator[list[str]]:
    """What is warned of inside, by and by."""
    said: list[str] = []

    def noted(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return True

    _log.addFilter(noted)
    try:
        yield said
    finally:
        _log.removeFilter(noted)


def captured(
    what: str, capture: Callable[[], OpGraph], *, training: bool, with_law: bool = False, before: Sequence[str] = (),
    precision: str = "auto",
) -> OpGraph:  # fmt: skip
    """The graph that `capture` makes of what the text names, which is kept if it can be found again.

    What it warns of is kept with it, and what was warned of `before`.
    """
    file = _file(what, training, with_law, precision)
    if file is None:
        return capture()
    with listening() as listener, warned() as said:
        graph = capture()
    is_ours, own = by_name.is_built_in(_FAMILIES, what), by_name.own(what)
    sources = None if is_ours else listener.sources(own.file.resolve().parent if own else None)
    if sources is not None or is_ours:
        compressed = zlib.compress(msgspec.msgpack.encode(graph, enc_hook=_plain), 1)
        _keep(file, CachedCapture(what, sources, compressed, tuple(dict.fromkeys([*before, *said]))))
    return graph


def kept_bytes() -> list[int]:
    """The bytes of every graph that the cache holds. Raises InputError where there is no place for a cache."""
    return [size for _, size, path in _files(cache_folder(KIND)) if path.suffix == ENDING]


def clear() -> None:
    """Remove all that the cache holds. Raises InputError for what cannot be removed."""
    for _, _, path in _files(cache_folder(KIND)):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot remove {path}: {error.strerror}") from error


def _file(what: str, training: bool, with_law: bool = False, precision: str = "auto") -> Path | None:
    """Where the graph of a model is kept; None for one that cannot be kept."""
    if not _torch_is_as_imported():
        return None
    try:
        is_ours, own = by_name.is_built_in(_FAMILIES, what), by_name.own(what)
        if own is not None and (own.knobs is not None or not own.file.is_file()):
            return None
        named = what if own is None else f"{own.file.absolute()} {own.file.resolve()} {own.function}"
        around = () if is_ours else (str(Path.cwd()), tuple(sys.path), installed())
        folder = cache_folder(KIND)
    except (InputError, OSError):  # a name that is none, or too long; a working folder that was removed; no home
        return None
    key = repr((named, training, with_law, precision, _of_placelab(), _torch(), sys.version_info[:3], around))
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{ENDING}"


@functools.cache
def _of_placelab() -> str:
    """A digest of the source that decides what a captured graph is."""
    return digest_of(file for pattern in _DECIDING for file in sorted(_GRAPHS.glob(pattern)))


@functools.cache
def _torch() -> str:
    try:
        return version("torch")  # without importing it
    except PackageNotFoundError:
        return ""


def _torch_is_as_imported() -> bool:
    """Whether nothing in this process changes which tensors a model makes unless it says so itself."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):  # not imported, or not yet to its end
        return True
    return (
        torch.is_grad_enabled()
        and torch.get_default_dtype() == torch.float32
        and torch.get_default_device() == torch.device("cpu")
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_autocast_enabled("cuda")
    )


def _keep(file: Path, entry: CachedCapture) -> None:
    """Write an entry, and remove those that were used least recently, if there are too many."""
    with contextlib.suppress(OSError, InputError):  # a folder that cannot be written, or is full
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, msgspec.msgpack.encode(entry))
        total, now = 0, time.time()
        for used, size, path in sorted(_files(file.parent), reverse=True):
            total += size
            if total > MOST_BYTES or (path.suffix != ENDING and used < now - _LEFT_OVER):
                path.unlink(missing_ok=True)


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """When each file was used last, its bytes, and itself; also of those that were not written to their end."""
    found: list[tuple[float, int, Path]] = []
    for path in folder.glob(f"*{ENDING}*") if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another process has removed it
            found.append((path.stat().st_mtime, path.stat().st_size, path))
    return found


def _plain(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """An array as msgpack can hold it."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a graph of the cache holds no {type(value).__name__}")
    return value.dtype.str, value.shape, value.tobytes()


def _array(_: type, plain: tuple[str, tuple[int, ...], bytes]) -> NDArray[Any]:
    dtype, shape, content = plain
    return np.frombuffer(content, dtype).reshape(shape)


_entries = msgspec.msgpack.Decoder(CachedCapture)
_graphs = msgspec.msgpack.Decoder(OpGraph, dec_hook=_array)
