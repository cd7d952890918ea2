"""The messages of Chakra execution traces, and the files that hold them.

A file is one rank's: a GlobalMetadata message, and then a Node for each step of it, every one with its length before it
as a varint; it may be packed by gzip. The schema is MLCommons' schema/protobuf/et_def.proto (package ChakraProtoMsg) in
github.com/mlcommons/chakra, of which these are the fields that are read and written here; others are left out when a
file is read. The layout of files is that of src/third_party/utils/protolib.py there.
"""

import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from graphs.foundation.documents import decompressed
from graphs.foundation.errors import InputError
from graphs.foundation.extras import missing

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise missing("google.protobuf", "a Chakra trace") from error

Message: TypeAlias = Any  # of a class that is made from the schema as the program runs
Value: TypeAlias = bool | int | float | str

VERSION = "0.0.4"
_GZIP = b"\x1f\x8b"
_LONGEST = 10  # bytes of a varint

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCHEMA: dict[str, list[tuple[str, int, int, str]]] = {  # of each message its fields: name, number, type, message
    "IOInfo": [("values", 1, _FIELD.TYPE_STRING, ""), ("shapes", 2, _FIELD.TYPE_STRING, ""),
               ("types", 3, _FIELD.TYPE_STRING, "")],
    "AttributeProto": [
        ("name", 1, _FIELD.TYPE_STRING, ""), ("double_val", 3, _FIELD.TYPE_DOUBLE, ""),
        ("float_val", 5, _FIELD.TYPE_FLOAT, ""), ("int32_val", 7, _FIELD.TYPE_INT32, ""),
        ("int64_val", 9, _FIELD.TYPE_INT64, ""), ("uint32_val", 11, _FIELD.TYPE_UINT32, ""),
        ("uint64_val", 13, _FIELD.TYPE_UINT64, ""), ("sint32_val", 15, _FIELD.TYPE_SINT32, ""),
        ("sint64_val", 17, _FIELD.TYPE_SINT64, ""), ("fixed32_val", 19, _FIELD.TYPE_FIXED32, ""),
        ("fixed64_val", 21, _FIELD.TYPE_FIXED64, ""), ("sfixed32_val", 23, _FIELD.TYPE_SFIXED32, ""),
        ("sfixed64_val", 25, _FIELD.TYPE_SFIXED64, ""), ("bool_val", 27, _FIELD.TYPE_BOOL, ""),
        ("string_val", 29, _FIELD.TYPE_STRING, ""),
    ],
    "GlobalMetadata": [("version", 1, _FIELD.TYPE_STRING, ""), ("*attr", 2, _FIELD.TYPE_MESSAGE, "AttributeProto")],
    "Node": [
        ("id", 1, _FIELD.TYPE_UINT64, ""), ("name", 2, _FIELD.TYPE_STRING, ""),
        ("type", 3, _FIELD.TYPE_INT32, ""),  # an enumeration, which has the same bytes
        ("*ctrl_deps", 4, _FIELD.TYPE_UINT64, ""), ("*data_deps", 5, _FIELD.TYPE_UINT64, ""),
        ("start_time_micros", 6, _FIELD.TYPE_UINT64, ""), ("duration_micros", 7, _FIELD.TYPE_UINT64, ""),
        ("inputs", 8, _FIELD.TYPE_MESSAGE, "IOInfo"), ("outputs", 9, _FIELD.TYPE_MESSAGE, "IOInfo"),
        ("*attr", 10, _FIELD.TYPE_MESSAGE, "AttributeProto"),
    ],
}  # fmt: skip


def new(message: str, **fields: Any) -> Message:
    """A message of the schema, such as "Node"."""
    return _classes()[message](**fields)


def attribute(name: str, kind: str, value: Value) -> Message:
    """An attribute whose value has the field of a kind, such as "int64_val"."""
    return new("AttributeProto", name=name, **{kind: value})


def attributes(node: Message) -> dict[str, Value]:
    """The attributes of a node by name; those that are lists are left out."""
    found = ((each.name, each.WhichOneof("value"), each) for each in node.attr)
    return {name: getattr(each, kind) for name, kind, each in found if kind is not None}


def written(messages: Iterable[Message]) -> bytes:
    """A file of messages."""
    parts = []
    for message in messages:
        content = message.SerializeToString(deterministic=True)
        parts += [_varint(len(content)), content]
    return b"".join(parts)


def nodes_of(path: Path, raw: bytes) -> list[Message]:
    """The nodes in a file. Raises InputError, naming the file, if it is damaged, or holds none."""
    try:
        raw = decompressed(path, raw) if raw.startswith(_GZIP) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    parts = _parts(path, raw)
    next(parts, None)  # of the whole trace: its version, and what made it
    nodes = [_parsed(path, part) for part in parts]
    if not nodes:
        raise InputError(f"{path} holds no Chakra execution trace with any nodes")
    return nodes


def _parsed(path: Path, part: bytes) -> Message:
    node = new("Node")
    try:
        node.ParseFromString(part)
    except Exception as error:  # of any implementation of protobuf
        raise InputError(f"{path} is damaged: it is no Chakra execution trace ({error})") from error
    return node


def _parts(path: Path, raw: bytes) -> Iterator[bytes]:
    """What is between the lengths."""
    at = 0
    while at < len(raw):
        size, shift = 0, 0
        while True:
            if at >= len(raw) or shift >= 7 * _LONGEST:
                raise InputError(f"{path} is damaged: it is no Chakra execution trace, or not all of one")
            size |= (raw[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if not raw[at - 1] & 0x80:
                break
        if at + size > len(raw):
            raise InputError(f"{path} is damaged: it is no Chakra execution trace, or not all of one")
        yield raw[at : at + size]
        at += size


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@cache
def _classes() -> dict[str, Any]:
    """The class of each message, in a pool of its own: the package chakra, if it is there, registers the same ones."""
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for message, fields in _SCHEMA.items():
        made = file.message_type.add(name=message)
        if message == "AttributeProto":
            made.oneof_decl.add(name="value")
        for name, number, kind, of in fields:
            field = made.field.add(name=name.lstrip("*"), number=number, type=kind)
            field.label = _FIELD.LABEL_REPEATED if name.startswith("*") else _FIELD.LABEL_OPTIONAL
            if of:
                field.type_name = f".ChakraProtoMsg.{of}"
            if message == "AttributeProto" and name != "name":
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}")) for name in _SCHEMA
    }
