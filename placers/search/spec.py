"""The spec of a placer: its name and the knobs that differ from their defaults."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def spec_of(name: str, placer: DataclassInstance) -> str:
    """The text that `graphs.foundation.by_name.build` turns into this placer again: "metis:seeds=20,default=true"."""
    knobs = {field.name: getattr(placer, field.name) for field in fields(placer)}
    changed = [
        f"{field.name}={_text(knobs[field.name])}" for field in fields(placer) if knobs[field.name] != field.default
    ]
    return f"{name}:{','.join(changed)}" if changed else name


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
