"""Shapes: the sizes of a policy, given by a spec such as "colocrl:devices=2,hidden=64", and the clusters it is for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import msgspec
import torch

from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

Size = Annotated[int, msgspec.Meta(ge=1)]
Even = Annotated[int, msgspec.Meta(ge=2, multiple_of=2)]
Above0 = Annotated[float, msgspec.Meta(gt=0)]
S = TypeVar("S", bound=msgspec.Struct)


def shape_of(spec: str, name: str, kind: type[S]) -> S:
    """The shape that a spec describes; knobs not given have the shape's defaults.

    Raises InputError for another name, an unknown knob, or a value that is not one.
    """
    given, knobs = by_name.parse(spec)
    if given != name:
        raise InputError(f"a policy of {name!r} has the network {name!r} and no other, got {spec!r}; take that one")
    for key in knobs:
        if key not in kind.__struct_fields__:
            raise InputError(f"{spec!r}: {by_name.unknown('knob', key, kind.__struct_fields__)}")
    try:
        return msgspec.convert(knobs, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{spec!r}: {error}") from error


def check_devices(name: str, devices: int, cluster: Cluster, *, or_else: str = "") -> None:
    """Raise InputError if a policy for this number of devices does not fit the cluster; `or_else` is another remedy."""
    if len(cluster) != devices:
        raise InputError(
            f"this policy of {name!r} is for {devices} devices, cluster {cluster.name!r} has {len(cluster)}; "
            f'train one with network = "{name}:devices={len(cluster)}"{or_else}'
        )


@contextmanager
def weights_drawn_from(seed: int) -> Iterator[None]:
    """Weights that are made in this context follow from the seed; torch's own generator keeps its state."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
