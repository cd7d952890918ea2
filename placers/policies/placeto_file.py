"""A Placeto policy on disk: `policy.safetensors` holds the weights, `meta.json` what it is made of; no pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from graphs.errors import InputError
from placers.policies.placeto import PlacetoPolicy, Shape, new_placeto

VERSION = 1
WEIGHTS = "policy.safetensors"
META = "meta.json"


class PlacetoMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `meta.json` says."""

    schema: Literal["placelab.placeto"] = "placelab.placeto"
    version: int = VERSION
    shape: Shape = Shape()
    seed: int = 0
    updates: int = 0
    simulations: int = 0  # that training used
    order: str = "topological"  # of the visits, in training


def save_placeto(folder: Path, policy: PlacetoPolicy, meta: PlacetoMeta) -> None:
    """Write the policy into a folder, which must exist."""
    save_file(policy.state_dict(), folder / WEIGHTS)
    (folder / META).write_bytes(msgspec.json.format(msgspec.json.encode(meta), indent=2))


def load_placeto(folder: Path) -> tuple[PlacetoPolicy, PlacetoMeta]:
    """The policy of a folder and its meta. Raises InputError, naming the file, if one is missing or does not fit."""
    path = folder / META
    if not path.is_file():
        raise InputError(f"{folder} holds no policy ({META} is missing); train one with training.reinforce")
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=PlacetoMeta)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: not a policy of Placeto's ({error})") from error
    if meta.version != VERSION:
        raise InputError(f"{path}: written as version {meta.version}, this placelab reads version {VERSION}")
    policy = new_placeto(meta.shape, meta.seed)
    try:
        policy.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{folder / WEIGHTS}: not the weights of this policy ({reason})") from error
    return policy, meta
