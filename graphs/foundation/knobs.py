"""Knobs: the keywords of a builder, given as text, "layers=4,steps=40", and checked before it is called.

A value that has commas is in brackets: "pp=4,order=[v_half:in_flight=3,times=1+2+1+0]".
"""

import inspect
import math
import re
from collections.abc import Callable
from typing import Literal, get_args, get_origin, get_type_hints

from graphs.foundation.errors import InputError, unknown

Builder = Callable[..., object]

_COMMA = re.compile(r",(?![^\[]*\])")
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
_FROM_TEXT: dict[str, Callable[[str], int | float | str]] = {
    "int": int, "float": float, "str": str, "bool": lambda text: _TRUTH[text.lower()],
}  # fmt: skip


def at_commas(text: str) -> list[str]:
    """Split at commas, but not within brackets."""
    return _COMMA.split(text)


def texts(spec: str, rest: str) -> dict[str, str]:
    """Split what follows the colon of a spec, "key=value,key=[a=1,b=2]", into knobs and their values."""
    knobs: dict[str, str] = {}
    for part in at_commas(rest):
        key, equals, value = part.partition("=")
        if value.startswith("[") != value.endswith("]"):
            raise InputError(f"{spec!r}: {part!r} has one bracket of two; write {key}=[...] around a value with commas")
        value = without_brackets(value)
        if not equals or not key or not value:
            raise InputError(f"{spec!r}: expected knobs as key=value,key=value after the colon, got {part!r}")
        if key in knobs:
            raise InputError(f"{spec!r}: knob {key!r} is given twice; give it once")
        knobs[key] = value
    return knobs


def without_brackets(value: str) -> str:
    """The value that is written in brackets, or without."""
    return value[1:-1] if value.startswith("[") and value.endswith("]") else value


def written(value: object) -> str:
    """The text of a knob's value, in brackets if it has commas."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"[{text}]" if "," in text else text


def knobs_of(builder: Builder) -> dict[str, inspect.Parameter]:
    """The keywords of a builder by name."""
    every = inspect.signature(builder).parameters
    return {name: knob for name, knob in every.items() if knob.kind in (knob.KEYWORD_ONLY, knob.POSITIONAL_OR_KEYWORD)}


def needed(builder: Builder) -> list[str]:
    """The knobs that have no default."""
    return [name for name, knob in knobs_of(builder).items() if knob.default is knob.empty]


def typed(spec: str, name: str, builder: Builder, given: dict[str, str], *, least: int | None) -> dict[str, object]:
    """The values of the knobs in a spec, the name without them, of the types that the builder's hints or defaults say.

    Whole numbers are at least `least`, or their default if that is less. Numbers are finite unless their default is
    not, and values are among those that a hint lists. Raises InputError for an unknown or missing knob, or a value that
    is wrong.
    """
    knobs = knobs_of(builder)
    values: dict[str, object] = {}
    for key, text in given.items():
        if key not in knobs:
            if not knobs:
                raise InputError(f"{name!r} has no knobs; leave out {key!r}")
            named = next((other for other, value in given.items() if other in knobs and ":" in value), "")
            remedy = f"; one of {given[named]!r} is in brackets with it, {named}=[...,{key}={text}]" if named else ""
            raise InputError(f"{spec!r}: {unknown('knob', key, knobs)}{remedy}")
        values[key] = _value(spec, knobs[key], text, least)
        choices = _choices(builder, key)
        if choices and values[key] not in choices:
            raise InputError(f"{spec!r}: {unknown(key, text, [str(each) for each in choices if each != ''])}")
    if missing := [key for key in needed(builder) if key not in values]:
        raise InputError(f"{spec!r} needs its knob {missing[0]!r}: {name}:{missing[0]}=...")
    return values


def _value(spec: str, knob: inspect.Parameter, text: str, least: int | None) -> object:
    kind = _kind(spec, knob)
    try:
        value = _FROM_TEXT[kind](text)
    except (ValueError, KeyError):
        expected = "true or false" if kind == "bool" else f"of type {kind}"
        raise InputError(f"{spec!r}: expected {knob.name} to be {expected}, got {text!r}") from None
    if kind == "int" and least is not None:
        least = min(knob.default, least) if isinstance(knob.default, int) else least
        if int(value) < least:
            raise InputError(f"{spec!r}: expected {knob.name} to be at least {least}, got {text}")
    if isinstance(value, float) and not math.isfinite(value) and (math.isnan(value) or knob.default != math.inf):
        raise InputError(f"{spec!r}: expected {knob.name} to be a finite number, got {text}")
    return value


def _choices(builder: Builder, knob: str) -> tuple[object, ...]:
    """The values that a knob's hint lists; () if it lists none, or has names that only type checkers know."""
    try:
        hint = get_type_hints(builder).get(knob)
    except (NameError, TypeError, AttributeError):
        return ()
    return get_args(hint) if get_origin(hint) is Literal else ()


def _kind(spec: str, knob: inspect.Parameter) -> str:
    """The type of a knob by its hint, which may be text, or by its default."""
    hint = knob.annotation if isinstance(knob.annotation, str) else getattr(knob.annotation, "__name__", "")
    for kind in (hint, type(knob.default).__name__):
        if kind in _FROM_TEXT:
            return kind
    if knob.annotation is knob.empty:
        return "str"
    raise InputError(f"{spec!r}: {knob.name} cannot be given as text: its type is {hint or knob.annotation}")
