"""What devices reserve of their memory, in sentences."""

from collections import defaultdict

from evaluation.records.formatting import memory, share
from graphs.cluster import Cluster


def reserved_sentences(cluster: Cluster) -> list[str]:
    """Of devices that reserve the same: what tensors may take of their memory, and what the rest is for."""
    alike: defaultdict[tuple[float, float, float], list[str]] = defaultdict(list)
    for device in cluster.devices:
        if device.usable_bytes < device.memory_bytes:
            alike[device.memory_bytes, device.reserved_bytes, device.fragmentation].append(device.name)
    found = []
    for (whole, reserved, fragmentation), names in alike.items():
        device = next(device for device in cluster.devices if device.name == names[0])
        named = names[0] if len(names) == 1 else f"each of {len(names)} devices ({names[0]}, ...)"
        parts = [f"{memory(reserved)} for driver and libraries"] if reserved else []
        parts += [f"{share(fragmentation)} of what tensors take for fragmentation"] if fragmentation else []
        found.append(
            f"Tensors may take {memory(device.usable_bytes)} of the {memory(whole)} of {named}: reserved are "
            f"{' and '.join(parts)}."
        )
    return found
