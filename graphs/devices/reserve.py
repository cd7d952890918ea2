"""Reserve: memory of a GPU that no tensor can have, since CUDA and its libraries, or the allocator, hold it.

room for tensors = (memory - reserved bytes) / (1 + fragmentation)
"""

import re
from dataclasses import dataclass, replace

from graphs.cluster import GIB, Cluster
from graphs.foundation.errors import InputError
from graphs.foundation.quantities import parse

NONE = "none"  # in addition to what a cluster says

_FIGURES = re.compile(r"(?P<size>[0-9.]+ *[A-Za-z]+)?(?:(?:^|(?<=B)\+)(?P<share>[0-9]+(?:\.[0-9]+)?)%)?")


@dataclass(frozen=True)
class Reserve:
    """What each GPU of a cluster reserves."""

    bytes: float
    fragmentation: float  # share of what tensors take
    between: float = 0.0  # bytes in addition where there are several GPUs

    def on(self, cluster: Cluster) -> Cluster:
        """The cluster whose GPUs reserve it, whatever they said before."""
        is_gpu = [device.kind == "gpu" for device in cluster.devices]
        size = self.bytes + (self.between if sum(is_gpu) > 1 else 0.0)
        devices = tuple(
            replace(device, reserved_bytes=size, fragmentation=self.fragmentation) if reserves else device
            for device, reserves in zip(cluster.devices, is_gpu, strict=True)
        )
        return replace(cluster, devices=devices)

    def check_room(self, cluster: Cluster) -> None:
        """Raise InputError if it leaves tensors nothing of a GPU of a cluster."""
        for device in self.on(cluster).devices:
            if device.kind == "gpu" and device.usable_bytes <= 0 < device.memory_bytes:
                size, whole = device.reserved_bytes / GIB, device.memory_bytes / GIB
                raise InputError(
                    f"a reserve of {size:g} GiB leaves tensors nothing of {device.name}, which has {whole:g} GiB; say "
                    "less with `reserve`, such as 1.5GiB, or none"
                )


def reserve_in(cluster: Cluster) -> str:
    """What each GPU of a cluster reserves, as `reserve_of` reads it; "" for nothing, or if they differ."""
    found = {(device.reserved_bytes, device.fragmentation) for device in cluster.devices if device.kind == "gpu"}
    size, fragmentation = found.pop() if len(found) == 1 else (0.0, 0.0)
    in_gib = f"{size / GIB:.6f}".rstrip("0").rstrip(".") + "GiB"
    said = [in_gib if parse(in_gib, "bytes") == size else f"{size:f}B"] if size else []
    return "+".join([*said, f"{100 * fragmentation:.12g}%"] if fragmentation else said)


# PyTorch on CUDA. A process has a CUDA context, with the kernels that it has run (300 MB and more since CUDA 11.7,
# which loads them when they are first run; before, above 1 GB), and handles of cuBLAS and cuDNN. A communicator of NCCL
# has 12 MiB for each channel and neighbour in a ring or a tree: with 24 channels, 0.3 to 0.9 GiB. Of what tensors take
# at their peak the allocator reserves 9% more, in the median of 32 steps of eight models on an H100: none to 13% of
# Transformers, 15 to 39% of convolutions (`evaluation/gpu_check/measured/h100.json`).
CUDA = Reserve(0.5 * GIB, 0.09, 1.0 * GIB)


def reserve_of(text: str) -> Reserve | None:
    """What "cuda", "1.5GiB", "8%" of what tensors take, or "1.5GiB+8%" names; None for `NONE`.

    Raises InputError for anything else, and for a share of 100% or more.
    """
    if text in (NONE, "cuda"):
        return CUDA if text == "cuda" else None
    match = _FIGURES.fullmatch(text)
    if match is None or not text:
        raise InputError(
            f"reserve {text!r}: expected cuda, none to reserve nothing, bytes such as 1.5GiB, a share of what tensors "
            "take such as 8%, or both, 1.5GiB+8%"
        )
    share = float(match["share"] or 0)
    if share >= 100:
        raise InputError(
            f"reserve {text!r}: the share is of what tensors take, in addition to that, and {share:g}% is not below "
            "100%; 8% is usual. To leave bytes of each GPU free give these, such as 12GiB"
        )
    return Reserve(parse(match["size"] or "0B", "bytes"), share / 100)
