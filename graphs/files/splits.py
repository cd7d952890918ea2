"""Splits: which graphs of a family policies are trained on, and which they are tested on; read, and none is made."""

from collections.abc import Sequence
from typing import Literal

from graphs.foundation import by_name
from graphs.foundation.errors import InputError


def split(families: Sequence[str], which: Literal["train", "test"]) -> list[str]:
    """The specs of the families' training graphs, or of their test graphs, as the families list them.

    Raises InputError for an unknown family, and for one that lists none.
    """
    key, specs = which.upper(), list[str]()
    for name in families:
        listed = by_name.constants("graphs.families", name).get(key)
        if not listed or not isinstance(listed, tuple | list):
            raise InputError(f"model family {name!r} has no list {key} of the knobs of its graphs")
        specs += [f"{name}:{knobs}" for knobs in listed]
    return specs
