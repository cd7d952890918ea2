"""Learned placers by name or by the folder of a run, found without importing torch.

Each is a folder here whose `placer.py`, a module of an installed package that, or a user's own file that has

- `TRAINER`, how its policy is trained: "ppo", "reinforce", "whole_plans" or the name of a class there, a subclass of
  `training.learning.trainer.Trainer`; a constant that is read without importing it;
- `new_policy(network, seed)`, an untrained policy: the `new` of a `SavedPolicy`;
- `build(*, checkpoint="", samples=0, untrained=False, ...)`, a `PolicyPlacer`.

A policy keeps the spec of a user's own file, "my_policy.py:build", and the file's hash.
"""

import hashlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from graphs.foundation import by_name
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.user_code import user_callables
from placers.contract.placer import Placer


def learned_placers() -> tuple[str, ...]:
    """The names of all placers whose policies can be trained."""
    return tuple(name for name in by_name.names("placers") if trainer_of(name))


def trainer_of(name: str) -> str:
    """How the policy of a placer is trained, as its file declares; "" for a placer without a policy.

    Raises InputError for a user's own file that is missing or no Python.
    """
    known = by_name.own(name) or by_name.exists("placers", name)
    return str(by_name.constants("placers", name).get("TRAINER", "")) if known else ""


def learned_module(name: str, *others: str) -> Any:  # a module, or what a user's file has in its place
    """What has the `new_policy` and `build` of a learned placer, and `others`. A user's file runs, once.

    Raises InputError for a placer that there is not, for a file without one of these, and for knobs after its name.
    """
    mine = by_name.own(name)
    if mine is None:
        return by_name.module("placers", name)
    if mine.knobs is not None:
        raise InputError(f"{name!r}: a policy has its knobs in its network; leave out {mine.knobs!r}")
    found = user_callables(mine.file, ("new_policy", mine.function.rpartition(":")[2], *others))
    return SimpleNamespace(**dict(zip(("new_policy", "build", *others), found, strict=True)))


def file_sha256(spec: str) -> str:
    """The hash of the user's own file that a placer or network is in; "" for one that is in none that there is."""
    mine = by_name.own(spec)
    return hashlib.sha256(mine.file.read_bytes()).hexdigest() if mine and mine.file.is_file() else ""


def placer_of(what: str | Path, **knobs: int) -> Placer:
    """The placer that a spec names; or the one with the policy in a folder, given as a path or if it is no name.

    Knobs are those of a folder's placer. Of a user's own file that has changed since a policy was trained it is said.
    Raises InputError for what is neither, and for a file that the user has not named nor allows (`named_in_file`).
    """
    if not isinstance(what, Path) and (
        not os.path.isdir(what) or by_name.exists("placers", what)  # noqa: PTH112 - a name may be too long for a path
    ):
        placer: Placer = by_name.build("placers", what)
        return placer
    from placers.learned.policy_meta import META, load_meta  # with numba; names need none

    meta = load_meta(Path(what))
    with located(Path(what) / META):
        name = named_in_file(meta.spec)
        if not trainer_of(name):
            raise InputError(f"{name!r} is no placer that acts with a policy; train another one")
    files = {
        str(mine.file)
        for spec, digest in ((meta.file, meta.file_sha256), (meta.network, meta.network_sha256))
        if digest and digest != file_sha256(spec) and (mine := by_name.own(spec))
    }
    for file in sorted(files):
        print(f"placelab: {file} has changed since the policy in {what} was trained", file=sys.stderr)
    learned: Placer = learned_module(name).build(checkpoint=str(what), **knobs)
    return learned
