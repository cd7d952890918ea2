"""Learned placers by name or by the folder of a run, found without importing torch.

Each is a folder here, whose `placer.py` has

- `TRAINER`, how its policy is trained: "ppo", "reinforce" or "whole_plans", a constant that is read without importing
  the file;
- `new_policy(network, seed)`, an untrained policy: the `new` of a `SavedPolicy`;
- `build(*, checkpoint="", samples=0, untrained=False, ...)`, a `PolicyPlacer`.
"""

import os
from pathlib import Path

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer


def learned_placers() -> tuple[str, ...]:
    """The names of all placers whose policies can be trained."""
    return tuple(name for name in by_name.names("placers") if trainer_of(name))


def trainer_of(name: str) -> str:
    """How the policy of a placer is trained, as its folder declares; "" for a placer without a policy."""
    known = by_name.exists("placers", name)
    return str(by_name.constants("placers", name).get("TRAINER", "")) if known else ""


def placer_of(what: str | Path, **knobs: int) -> Placer:
    """The placer that a spec names; or the one with the policy in a folder, given as a path or if it is no name.

    Knobs are those of a folder's placer. Raises InputError for what is neither.
    """
    if not isinstance(what, Path) and (
        not os.path.isdir(what) or by_name.exists("placers", what)  # noqa: PTH112 - a name may be too long for a path
    ):
        placer: Placer = by_name.build("placers", what)
        return placer
    from placers.learned.policy_meta import META, load_meta  # with numba; names need none

    name = load_meta(Path(what)).placer
    if not trainer_of(name):
        raise InputError(f"{Path(what) / META}: {name!r} is no placer that acts with a policy")
    learned: Placer = by_name.module("placers", name).build(checkpoint=str(what), **knobs)
    return learned
