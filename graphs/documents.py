"""Versioned text files: reading one gives a checked structure, or one sentence that says what is wrong and where."""

from __future__ import annotations

import gzip
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from graphs.errors import InputError

Document = TypeVar("Document")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?:\$|key in \$)\.?(?P<where>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def read_document(path: Path, kind: type[Document], *, version: int, remedy: str) -> Document:
    """The document in a TOML, JSON or gzipped JSON file; `remedy` says how one comes by such a file.

    Raises InputError, naming the file and the place in it, if it is missing, damaged, or of another version.
    """
    content = _decoded(path, remedy)
    if isinstance(content, dict) and content.get("version", version) != version:
        raise InputError(f"{path}: written as version {content['version']}, this placelab reads version {version}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {_explained(str(error), content)}") from error


def _decoded(path: Path, remedy: str) -> Any:  # whatever the file holds
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        return tomllib.loads(raw.decode()) if path.suffix == ".toml" else msgspec.json.decode(raw)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; {remedy}") from None
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _explained(message: str, content: object) -> str:
    """Turn "Expected `float` >= 0.0 - at `$.nodes[3].flops`" into "nodes[3].flops: expected ..., got -1"."""
    match = _AT.match(message)
    what, where = (match["what"], match["where"] or "") if match else (message, "")
    what = (what[:1].lower() + what[1:]).replace("`", "")
    if ">=" in what:
        what += f", got {_value_at(content, where)}"
    return f"{where}: {what}" if where else what


def _value_at(content: Any, where: str) -> object:
    for index, key in _STEP.findall(where):
        content = content[int(index)] if index else content[key]
    return content
