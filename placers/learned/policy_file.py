"""A policy on disk: a folder with its weights, what it is made of and what it expects to see.

`policy.safetensors` holds the weights and `meta.json` the rest; no pickle. A folder written for other features or by
another file version is refused rather than misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.torch_threads import limit_torch_threads
from placers.learned.features import DEVICE_FEATURES, PAIR_FEATURES, UNIT_FEATURES
from placers.learned.finite import are_finite
from placers.learned.policy import LearnedPolicy

VERSION = 1
WEIGHTS = "policy.safetensors"
META = "meta.json"
P = TypeVar("P", bound=LearnedPolicy)


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `meta.json` says."""

    schema: str = "placelab.policy"
    version: int = VERSION
    placer: str  # the folder in placers/learned that acts with this policy: "gdp"
    network: str  # spec of the network: "graphsage_transformer:width=64"
    seed: int
    simulations: int = 0  # simulations that training used
    updates: int = 0
    unit_features: tuple[str, ...] = UNIT_FEATURES
    device_features: tuple[str, ...] = DEVICE_FEATURES
    pair_features: tuple[str, ...] = PAIR_FEATURES
    decoder_features: tuple[str, ...] = ()  # of a policy that reads more than an observation
    versions: dict[str, str] = {}


def save_policy(folder: Path, weights: dict[str, Tensor], meta: Meta) -> None:
    """Write a policy, given by its `state_dict()`, into a folder, which must exist.

    Raises InputError for weights that are not finite numbers, or if the files cannot be written.
    """
    check_weights(folder / WEIGHTS, weights)
    write_whole(folder / WEIGHTS, save(weights))
    write_whole(folder / META, msgspec.json.format(msgspec.json.encode(meta), indent=2))


def check_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Raise InputError, naming the file, for weights that are not all finite numbers: such a policy has diverged."""
    if not are_finite(weights.values()):
        raise InputError(f"{path}: the policy's weights are not finite numbers, its training has diverged; train again")


def load_meta(folder: Path) -> Meta:
    """Raises InputError, naming the file, if it is missing, damaged, or of another version or other features."""
    path = folder / META
    if not path.is_file():
        raise InputError(
            f"{folder} holds no policy ({META} is missing); train one with `placelab train --out {folder}`"
        )
    meta = read_document(path, Meta, version=VERSION, remedy="`placelab train` writes it")
    _check_features(path, "unit", meta.unit_features, UNIT_FEATURES)
    _check_features(path, "device", meta.device_features, DEVICE_FEATURES)
    _check_features(path, "pair", meta.pair_features, PAIR_FEATURES)
    return meta


def _check_features(path: Path, what: str, theirs: tuple[str, ...], ours: tuple[str, ...]) -> None:
    if theirs != ours:
        differing = ", ".join(sorted(set(theirs) ^ set(ours))) or "their order"
        raise InputError(f"{path}: this policy was trained on other {what} features ({differing}); train it again")


def load_policy(folder: Path, kind: type[P]) -> tuple[P, Meta]:
    """The policy of a kind in a folder, and its meta.

    Raises InputError as `load_meta` does, and for a policy of another placer, other features or damaged weights.
    """
    limit_torch_threads()
    meta = load_meta(folder)
    if meta.placer != kind.kind:
        raise InputError(
            f"{folder} holds a policy of {meta.placer!r}, not of {kind.kind!r}; use {meta.placer}:checkpoint={folder}"
        )
    policy = kind.new(meta.network, meta.seed)
    _check_features(folder / META, "decoder", meta.decoder_features, policy.decoder_features)
    try:
        policy.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{folder / WEIGHTS}: not the weights of {meta.network!r} ({reason})") from error
    check_weights(folder / WEIGHTS, policy.state_dict())
    return policy, meta
