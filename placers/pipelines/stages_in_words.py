"""Stages of a pipeline in words, for notes of placers."""

from collections.abc import Sequence


def stages_in_words(pieces: Sequence[int], devices: Sequence[int]) -> str:
    """How many pieces of a chain each stage has, and how many devices, (stages,) each."""
    if len(pieces) == 1:
        return f"one stage on {devices[0]} device{'s' * (devices[0] != 1)}"
    are_alike = len(set(devices)) == 1
    on = f"{devices[0]} device{'s' * (devices[0] != 1)} each" if are_alike else f"{_several(devices)} devices"
    cut = f"{_several(pieces)} of the {sum(pieces)} pieces that the graph is cut into"
    return f"{len(pieces)} stages, of {cut}, on {on}"


def _several(counts: Sequence[int]) -> str:
    *others, last = map(str, counts)
    return f"{', '.join(others)} and {last}"
