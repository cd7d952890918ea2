"""What is wrong with a document that does not hold what it should: a sentence, with what was probably meant."""

import json
import re
from collections.abc import Iterator, Sequence
from reprlib import repr as shortened
from typing import Any

import msgspec
from msgspec import inspect

from graphs.foundation.errors import unknown

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?:\$|key in \$)\.?(?P<where>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[(\d+)\]|\[(\.\.\.)\]|([^.\[\]]+)")  # an index, a key that msgspec does not name, a key
_QUOTED = re.compile(r"`(.*)`|'(.*)'", re.DOTALL)
_TABLES = "it is a list of objects, in TOML tables under [[...]]"
_TABLE = "it is one object, in TOML one table under [...]"
_TYPE = re.compile(r"\b(?P<of>expected|got|\|) (?P<type>int|float|str|bool|array|object)\b")
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list",
    "object": "a table",
}  # fmt: skip
Step = int | str | None


def explained(error: msgspec.ValidationError, content: object, kind: Any) -> str:
    """Turn "Expected `float` >= 0.0 - at `$.nodes[3].flops`" into "nodes[3].flops: expected ..., got -1".

    `kind` is the type that `content` was to be converted to.
    """
    match = _AT.match(str(error))
    what, where = (match["what"], match["where"] or "") if match else (str(error), "")
    steps: list[Step] = [int(index) if index else key or None for index, _, key in _STEP.findall(where)]
    if not _leads_somewhere(content, steps):  # such as a key that is itself of the wrong type, or has dots
        return _in_words(f"{where}: {_plain(what)}" if where else _plain(what))
    steps = _named(str(error), content, kind, steps)
    value = _at(content, steps)
    sentence = _in_words(_with_remedy(what, value, list(_types(inspect.type_info(kind), steps))))
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step or '[...]'}" for step in steps).removeprefix(".")
    return f"{place}: {sentence}" if place else sentence


def _with_remedy(what: str, value: Any, types: Sequence[inspect.Type]) -> str:  # value: whatever the document holds
    """What msgspec says of a value that was to be of one of some types."""
    quoted = next((one or other for one, other in _QUOTED.findall(what)), "")
    keys = {field.encode_name: field for one in types if isinstance(one, inspect.StructType) for field in one.fields}
    if what.startswith("Object contains unknown field"):
        sentence = unknown("key", quoted, keys)
        inside = [f"{name}.{quoted}" for name, field in keys.items() if quoted in _keys(field.type)]
        asked = f"did you mean {' or '.join(inside)}? there are"
        return sentence.replace("there are", asked, 1) if inside and "did you mean" not in sentence else sentence
    if what.startswith("Object missing required field"):
        slips = [unknown("key", key, keys) for key in value if key not in keys] if isinstance(value, dict) else []
        for slip in slips:
            if f"did you mean {quoted!r}" in slip:
                return slip
        example = _example(keys[quoted].type) if quoted in keys else None
        return f"the key {quoted!r} is missing; {f'add it, such as {quoted} = {example}' if example else 'add it'}"
    choices = [choice for one in types if isinstance(one, inspect.LiteralType) for choice in one.values]
    choices += [one.value for each in types if isinstance(each, inspect.EnumType) for one in each.cls]
    if what.startswith("Invalid enum value") and choices:
        others = ", or a number" if any(isinstance(one, inspect.IntType | inspect.FloatType) for one in types) else ""
        return unknown("value", str(value), map(str, choices)) + others
    what = _plain(what).replace(" | null", "")
    if ">" in what or "<" in what:
        return f"{what}, got {shortened(value)}"
    if what.startswith("expected array, got") and isinstance(value, dict):
        return f"{what}; {_TABLES}"
    if what.startswith("expected object, got") and isinstance(value, list):
        return f"{what}; {_TABLE}"
    if what.startswith("expected array, got"):
        return f"{what}; write a list, {json.dumps([value], ensure_ascii=False)}"
    if "got str" in what and _is_number(value) and not what.startswith("expected array"):
        return f"{what}; write {value} without quotes"
    return what


def _in_words(sentence: str) -> str:
    """With the types' names as people say them: "expected a whole number, got a text"."""
    return _TYPE.sub(lambda found: f"{found['of']} {_WORDS[found['type']]}", sentence)


def _plain(what: str) -> str:
    return (what[:1].lower() + what[1:]).replace("`", "")


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) is not None
    except ValueError:
        return False


def _types(kind: inspect.Type, steps: Sequence[Step]) -> Iterator[inspect.Type]:
    """The types that a place in a document may have."""
    if isinstance(kind, inspect.Metadata):
        yield from _types(kind.type, steps)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _types(one, steps)
    elif not steps:
        yield kind
    else:
        step, rest = steps[0], steps[1:]
        if isinstance(kind, inspect.StructType):
            for field in kind.fields:
                if field.encode_name == step:
                    yield from _types(field.type, rest)
        elif isinstance(kind, inspect.DictType):
            yield from _types(kind.value_type, rest)
        elif isinstance(kind, inspect.TupleType) and isinstance(step, int) and step < len(kind.item_types):
            yield from _types(kind.item_types[step], rest)
        elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
            yield from _types(kind.item_type, rest)


def _keys(kind: inspect.Type) -> set[str]:
    """The keys of a table."""
    tables = [one for one in _types(kind, ()) if isinstance(one, inspect.StructType)]
    return {field.encode_name for table in tables for field in table.fields}


def _example(kind: inspect.Type) -> str | None:
    """A value that a type says is one of its own, as it is written."""
    if isinstance(kind, inspect.Metadata):
        examples = (kind.extra_json_schema or {}).get("examples", [])
        return json.dumps(examples[0]) if examples else _example(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_example, kind.types)), None)
    return json.dumps(kind.values[0]) if isinstance(kind, inspect.LiteralType) else None


# ---- places ------------------------------------------------------------------------------------------------


def _leads_somewhere(content: Any, steps: Sequence[Step]) -> bool:
    """Whether a document has a place, as far as its keys are named."""
    for i, step in enumerate(steps):
        if step is None:
            return isinstance(content, dict) and any(_leads_somewhere(one, steps[i + 1 :]) for one in content.values())
        try:
            content = content[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _at(content: Any, steps: Sequence[Step]) -> Any:
    """What is at a place; nothing where a key is not named."""
    for step in steps:
        content = content[step] if step is not None else None
        if content is None:
            break
    return content


def _named(message: str, content: Any, kind: Any, steps: Sequence[Step]) -> list[Step]:
    """A place with the keys that msgspec does not name: those without which the document is not wrong in this way."""
    found = list[Step]()
    for i, step in enumerate(steps):
        if step is not None:
            found.append(step)
            continue
        entries = list(_at(content, found).items())
        while len(entries) > 1:
            half = entries[: len(entries) // 2]
            if not _is_said(message, _with(content, found, dict(half)), kind):
                half = entries[len(entries) // 2 :]
            entries = half
        content = _with(content, found, dict(entries))
        if not entries or not _is_said(message, content, kind):
            return [*found, *steps[i:]]
        found.append(entries[0][0])
    return found


def _with(content: Any, steps: Sequence[Step], value: object) -> Any:
    """A document with another value in one place."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(content, dict):
        return {key: _with(one, rest, value) if key == step else one for key, one in content.items()}
    return [_with(one, rest, value) if i == step else one for i, one in enumerate(content)]


def _is_said(message: str, content: object, kind: Any) -> bool:
    try:
        msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        return str(error) == message
    return False
