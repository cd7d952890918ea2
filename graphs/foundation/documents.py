"""Versioned text files: reading one gives a checked structure, or one sentence that says what is wrong and where."""

import gzip
import io
import json
import re
import tomllib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from graphs.foundation.wrong_documents import explained

Document = TypeVar("Document")

MOST_BYTES = 2**30  # decompressed: enough for a graph of millions of ops, and less than a laptop's memory
_CHUNK = 2**20  # bytes decompressed at once
_POINTER = b"version https://git-lfs.github.com/spec/"  # how a file begins that Git LFS has put in place of another
PIPES = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # no regular files, and read nevertheless

_AT = re.compile(r"^(?P<what>.*) \(at line (?P<line>\d+), column \d+\)$", re.DOTALL)
_TWICE = "something is given twice; keep one of them, and write the tables of a list as [[name]]"


def read_document(
    path: Path, kind: type[Document], *, version: int, remedy: str,
    earlier: Mapping[int, type[Document]] = MappingProxyType({}),
) -> Document:  # fmt: skip
    """The document in a TOML, JSON or gzipped JSON file; `remedy` says how to get such a file.

    `earlier` says which kind of document a file of each earlier version holds, where these are read as well.

    Raises InputError, naming the file and the place in it, if it is missing, damaged, or of another version, or says
    the same thing twice.
    """
    raw = read_file(path, remedy)
    try:
        with located(path):
            content = _of_toml(raw) if path.suffix == ".toml" else _of_json(raw)
            _check_schema(content, kind)
            written = _version(content, (*earlier, version))
            try:
                return msgspec.convert(content, earlier.get(written, kind))
            except msgspec.ValidationError as error:
                raise InputError(explained(error, content, earlier.get(written, kind))) from error
    except InputError:
        raise
    except RecursionError:
        raise InputError(f"{path} is damaged: its brackets are nested too deeply") from None
    except ValueError as error:  # bytes that are no text, text that is no TOML or JSON, numbers of thousands of digits
        raise InputError(f"{path} is damaged: {str(error).partition('; use sys.')[0]}") from error


def write_document(content: msgspec.Struct, path: Path) -> None:
    """Write a document as indented JSON. Raises InputError as `write_whole`."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _check_schema(content: object, kind: type[Any]) -> None:
    """Raise InputError for a file of another kind of ours."""
    plain = get_origin(kind) or kind  # of a generic structure, what its parameters are left open in
    fields = msgspec.structs.fields(plain) if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else ()
    expected = next((get_args(field.type) for field in fields if field.name == "schema"), ())
    given = content.get("schema") if isinstance(content, dict) else None
    if expected and isinstance(given, str) and given.startswith("placelab.") and given not in expected:
        raise InputError(f"this is a file of {given!r}; expected one of {expected[0]!r}")


def read_file(path: Path, remedy: str) -> bytes:
    """What a file holds, decompressed if its name ends in ".gz"; `remedy` says how to get such a file.

    Raises InputError, naming the file, if it is missing, cannot be read or decompressed, is a pointer of Git LFS, or is
    no regular file, whose reading might never end; standard input and pipes of the shell are read.
    """
    try:
        may_block = not (path.is_file() or path.is_dir() or str(path).startswith(PIPES))
        if may_block and path.exists():
            raise InputError(f"{path} cannot be read: it is no regular file")
        raw = path.read_bytes()
        if raw.startswith(_POINTER):
            raise InputError(f"{path} is a pointer of Git LFS and not the file itself; fetch that with `git lfs pull`")
        return decompressed(path, raw) if path.suffix == ".gz" else raw
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; {remedy}") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def decompressed(path: Path, raw: bytes) -> bytes:
    """What gzipped bytes hold. Raises InputError, naming the file, for more than a laptop's memory takes.

    Raises what gzip raises for damaged bytes.
    """
    chunks: list[bytes] = []
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
        while chunk := stream.read(_CHUNK):
            chunks.append(chunk)
            if len(chunks) * _CHUNK > MOST_BYTES:
                raise InputError(f"{path} holds more than {MOST_BYTES / 2**30:g} GiB; decompress it first")
    return b"".join(chunks)


def _of_toml(raw: bytes) -> dict[str, Any]:
    """Raises ValueError, which says the line, for what is no TOML."""
    text = raw.decode()
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT.match(str(error))
        what = _TWICE if "Cannot overwrite" in str(error) or "twice" in str(error) else match["what"] if match else ""
        if match is None:
            raise ValueError(what or str(error)) from error
        line = text.splitlines()[int(match["line"]) - 1].strip()
        raise ValueError(f"{what} (line {match['line']}: {shortened(line)})") from error


def _of_json(raw: bytes) -> Any:  # whatever the file holds
    """Raises InputError for a key that is given twice: the first would be dropped silently."""
    content = msgspec.json.decode(raw)
    json.loads(raw, object_pairs_hook=_checked)
    return content


def _checked(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"{key!r} is given twice; keep one of them")


def _version(content: object, readable: Sequence[int]) -> int:
    """The version of a file. Raises InputError for none that is readable."""
    written = content.get("version", readable[-1]) if isinstance(content, dict) else readable[-1]
    if isinstance(written, bool) or not isinstance(written, int):
        raise InputError(f"version: expected the number {readable[-1]}, got {shortened(written)}")
    check_version(written, readable)
    return written


def check_version(written: int, readable: Sequence[int]) -> None:
    """Raise InputError, with what to take, for a version that is not among those that can be read, ascending."""
    if written not in readable:
        *others, last = map(str, readable)
        versions = f"versions {', '.join(others)} and {last}" if others else f"version {last}"
        other = "a later placelab" if written > readable[-1] else "the placelab that wrote it"
        raise InputError(f"written as version {written}, this placelab reads {versions}; take {other}")
