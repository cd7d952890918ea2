"""A policy on disk: a folder with its weights, what it is made of and what it expects to see.

`policy.safetensors` holds the weights and `meta.json` the rest; no pickle. A folder written for features that are not
known, or by another file version, is refused rather than misread.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, listed, located
from graphs.foundation.files import write_whole
from graphs.foundation.torch_threads import limit_torch_threads
from placers.learned.finite import are_finite
from placers.learned.policy import SavedPolicy
from placers.learned.policy_meta import META, Meta, check_features, load_meta

WEIGHTS = "policy.safetensors"
P = TypeVar("P", bound=SavedPolicy)


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


def load_policy(folder: Path, kind: type[P]) -> tuple[P, Meta]:
    """The policy of a kind in a folder, and its meta.

    A policy from before some of its decoder's features has weights of zero for these, and places as it did. Raises
    InputError as `load_meta` does, and for a policy of another placer, a network that is code (`named_in_file`),
    unknown features or damaged weights.
    """
    limit_torch_threads()
    meta = load_meta(folder)
    if meta.placer != kind.kind:
        raise InputError(
            f"{folder} holds a policy of {meta.placer!r}, not of {kind.kind!r}; use {meta.placer}:checkpoint={folder}"
        )
    with located(folder / META):
        policy = kind.new(named_in_file(meta.network), meta.seed)
    ours, theirs = policy.decoder_features, meta.decoder_features
    readable = tuple(name for name in theirs if name in ours) if policy.feature_weights else ours
    check_features(folder / META, "decoder", theirs, readable)
    check_features(folder / META, "order", meta.order_features, policy.order_features)
    raw = read_file(folder / WEIGHTS, "a run of `placelab train` writes it; copy the whole folder")
    try:
        weights = load(raw)
        check_names(weights, policy.state_dict())
        for name in policy.feature_weights:
            weights[name] = by_feature(weights[name], theirs, ours)
        check_shapes(weights, policy.state_dict())
        policy.load_state_dict(weights)
    except (SafetensorError, RuntimeError, KeyError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{folder / WEIGHTS}: not the weights of {meta.network!r} ({reason})") from error
    check_weights(folder / WEIGHTS, policy.state_dict())
    return policy, meta


def check_names(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise RuntimeError, naming the first, unless tensors have the names that are expected."""
    for what, names in (("lacks", expected.keys() - given.keys()), ("also has", given.keys() - expected.keys())):
        if names:
            raise RuntimeError(f"it {what} {listed([repr(name) for name in sorted(names)], 1)}")


def check_shapes(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise RuntimeError, naming the first in order, unless tensors of the same names have the shapes expected."""
    for name, tensor in expected.items():
        if given[name].shape != tensor.shape:
            shapes = (" x ".join(map(str, each.shape)) or "a number" for each in (given[name], tensor))
            raise RuntimeError("{!r} is {} and not {}".format(name, *shapes))


def by_feature(weight: Tensor, theirs: Sequence[str], ours: Sequence[str]) -> Tensor:
    """(outputs, ours) the columns of a weight, (outputs, theirs), by feature: zero for a feature that it did not know.

    A policy is then what it was: it does not listen to what it never saw. Raises RuntimeError for other numbers of
    columns.
    """
    if weight.ndim != 2 or weight.shape[1] != len(theirs):
        raise RuntimeError(f"weights of {weight.shape[-1] if weight.ndim else 1} features, and {len(theirs)} are named")
    padded = weight.new_zeros(len(weight), len(ours))
    padded[:, [ours.index(name) for name in theirs]] = weight
    return padded
