"""Mutations: what slips, editors, disks and programs do to a file, at random and the same for the same seed."""

from __future__ import annotations

import gzip
import json
import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

SENSELESS: list[Any] = [
    None, True, False, "", "x", "1", "nan", -1, 0, 1, 1.5, -0.0, 2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 1e-308,
    5e-324, 1e18, 1e19, 1e308, -1e308, float("nan"), float("inf"), [], {}, [[]], {"": ""}, ["a", "a"], "\ud800", "\0",
    "🙂", "a" * 5000,
]  # fmt: skip
WORDS = [
    b"", b"-1", b"0", b"1e308", b"1e-308", b"1e999", b"nan", b"inf", b"-inf", b"9" * 30, b"9" * 5000, b"true", b"null",
    b'""', b'"x"', b"[]", b"{}", b"[" * 3000, b"{" * 3000, b'{"a":' * 3000, b"\xff", b"\0", b"\xef\xbb\xbf", b"\n",
    "🙂".encode(), b"x" * 5000,
]  # fmt: skip
NUMBERS = [b"0", b"-1", b"1e-30", b"1e-9", b"0.5", b"2", b"17", b"1e18", b"1e30", b"1e308", b"5e-324"]
_TOKEN = re.compile(rb'-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|"[^"\n]*"|[A-Za-z_]+|[\[\]{}=:,]')

Mutation = Callable[[random.Random, bytes], bytes]


def mutated(rng: random.Random, raw: bytes, mutations: tuple[Mutation, ...]) -> bytes:
    """The content of a file after one mutation, or a few."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        raw = rng.choice(mutations)(rng, raw)
    return raw


def flipped(rng: random.Random, raw: bytes) -> bytes:
    """Some bytes are others."""
    damaged = bytearray(raw)
    for _ in range(rng.choice((1, 1, 3, 10))):
        if damaged:
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def cut(rng: random.Random, raw: bytes) -> bytes:
    """The file ends early."""
    return raw[: rng.randrange(len(raw) + 1)]


def moved(rng: random.Random, raw: bytes) -> bytes:
    """A part is missing, is there twice, or somewhere else."""
    start, end = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    part, rest = raw[start : min(end, start + 64)], raw[:start] + raw[min(end, start + 64) :]
    at = rng.randrange(len(rest) + 1)
    return rng.choice((rest, raw[:start] + part + raw[start:], rest[:at] + part + rest[at:]))


def other_lines(rng: random.Random, raw: bytes) -> bytes:
    """A line is missing, is there twice, or changes places."""
    lines = raw.splitlines(keepends=True) or [b""]
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        del lines[one]
    elif kind == 1:
        lines.insert(other, lines[one])
    else:
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def other_word(rng: random.Random, raw: bytes) -> bytes:
    """A number, a name or a bracket is another one of the file, or one that makes no sense."""
    tokens = list(_TOKEN.finditer(raw))
    if not tokens:
        return raw
    token = rng.choice(tokens)
    alike = [other[0] for other in tokens if _class(other[0]) == _class(token[0])]
    word = rng.choice(alike + NUMBERS if _class(token[0]) == "number" else alike) if rng.random() < 0.8 else None
    return raw[: token.start()] + (rng.choice(WORDS) if word is None else word) + raw[token.end() :]


def other_value(rng: random.Random, document: Any) -> None:
    """A value makes no sense, is missing, is there twice, or is there under another name; in place."""
    places = list(_places(document))
    if not places:
        return
    holder, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif kind == 1:
        holder[rng.choice(["extra", "", "a" * 100, f"{key} "])] = holder[key]
    elif kind == 2:
        alike = [other[at] for other, at in places if type(other[at]) is type(holder[key])]
        holder[key] = rng.choice(alike)
    elif kind == 3 and isinstance(holder[key], int | float) and abs(holder[key]) < 1e300:
        holder[key] *= rng.choice((0, -1, 0.5, 2, 1e9, 1e-9, 1e30))
    else:
        holder[key] = rng.choice(SENSELESS)


def in_json(rng: random.Random, raw: bytes) -> bytes:
    """`other_value` in a JSON document, or in each line of several."""
    lines = raw.splitlines() if raw.startswith(b"{") and raw.count(b"\n{") else [raw]
    at = rng.randrange(len(lines))
    try:
        document = json.loads(lines[at])
        other_value(rng, document)
        written = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # damaged before, or a value that now holds itself
        return raw
    return b"".join(line + b"\n" for line in [*lines[:at], written, *lines[at + 1 :]])


def in_toml(rng: random.Random, raw: bytes) -> bytes:
    """`other_value` in a TOML document."""
    try:
        document = tomllib.loads(raw.decode())
        other_value(rng, document)
        return tomli_w.dumps(document).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, RecursionError):  # or a value for which TOML has no words
        return raw


def in_onnx(rng: random.Random, raw: bytes) -> bytes:
    """`other_value` in an ONNX model."""
    from google.protobuf import json_format  # type: ignore[import-untyped]
    from onnx import ModelProto

    try:
        document = json.loads(json_format.MessageToJson(ModelProto.FromString(raw)))
        other_value(rng, document)
        made: bytes = json_format.ParseDict(document, ModelProto()).SerializeToString(deterministic=True)
    except Exception:
        return raw
    return made


def in_chakra(rng: random.Random, raw: bytes) -> bytes:
    """`other_value` in the messages of a Chakra execution trace; or one is missing, is there twice, or elsewhere."""
    from google.protobuf import json_format

    from graphs.formats.chakra_messages import new, nodes_of, written

    try:
        nodes = nodes_of(Path("x.et"), raw)
        documents = [json_format.MessageToDict(node, preserving_proto_field_name=True) for node in nodes]
        other_value(rng, documents)
        again = [json_format.ParseDict(document, new("Node")) for document in documents]
        return written([new("GlobalMetadata", version="0.0.4"), *again])
    except Exception:  # damaged before, or no message any more
        return raw


def in_safetensors(rng: random.Random, raw: bytes) -> bytes:
    """`other_value` in the header of a file of tensors: names, shapes, types and places; the rest stays."""
    try:
        end = 8 + int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:end])
        other_value(rng, header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + raw[end:]
    except (ValueError, OverflowError, RecursionError, UnicodeError):
        return raw


def _class(word: bytes) -> str:
    return "text" if word[:1] == b'"' else "number" if word[:1].isdigit() or word[:1] == b"-" else "other"


def repacked(inner: Mutation) -> Mutation:
    """What a mutation does to the content of a gzipped file."""

    def mutation(rng: random.Random, raw: bytes) -> bytes:
        try:
            return gzip.compress(inner(rng, gzip.decompress(raw)), mtime=0)
        except Exception:
            return raw

    return mutation


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every value of a document, by what holds it and the key there."""
    found: list[tuple[Any, Any]] = []
    left = [document]
    while left:
        holder = left.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        left += [holder[key] for key in keys]
    return found


BYTES: tuple[Mutation, ...] = (flipped, cut, moved)
TEXT: tuple[Mutation, ...] = (*BYTES, other_lines, *[other_word] * 8)
TOML: tuple[Mutation, ...] = (*TEXT, *[in_toml] * 12)
JSON: tuple[Mutation, ...] = (*TEXT, *[in_json] * 24)
GZIP: tuple[Mutation, ...] = (*BYTES, *map(repacked, JSON))
CHAKRA: tuple[Mutation, ...] = (*BYTES, *[in_chakra] * 10)
TENSORS: tuple[Mutation, ...] = (*BYTES, *[in_safetensors] * 6)
ONNX: tuple[Mutation, ...] = (*BYTES, flipped, flipped, *[in_onnx] * 10)
