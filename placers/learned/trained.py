"""A folder with a trained policy, as the placer that acts with it."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec

from graphs.foundation import by_name
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer


class _Kind(msgspec.Struct, frozen=True):
    """What a policy's `meta.json` says of the placer that it is for."""

    schema: str
    placer: str = ""


def trained(folder: Path, **knobs: int) -> Placer:
    """The placer with the policy in a folder. Raises InputError for a folder without one."""
    path = Path(folder) / "meta.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no policy (meta.json is missing); `placelab train` makes one")
    kind = read_document(path, _Kind, version=1, remedy="`placelab train` writes it")
    name = kind.placer or kind.schema.rpartition(".")[2]
    build = by_name.module("placers", name).build
    if "checkpoint" not in inspect.signature(build).parameters:
        raise InputError(f"{path}: {name!r} is no placer that acts with a policy")
    placer: Placer = build(checkpoint=str(folder), **knobs)
    return placer


def placer_of(what: str) -> Placer:
    """The placer that a spec names, or the trained one in a folder. Raises InputError for what is neither."""
    if Path(what).is_dir() and what not in by_name.names("placers"):
        return trained(Path(what))
    placer: Placer = by_name.build("placers", what)
    return placer
