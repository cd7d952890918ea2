"""The profiles released with PipeDream, as its optimizer reads them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphs.formats.pipedream import LayerProfile, ProfiledLayer, load_layer_profile

DATA = Path(__file__).parents[3] / "shared" / "data" / "pipedream"


@cache
def profile(model: str) -> LayerProfile:
    """Without inputs and without items of outputs that nobody reads, which the program leaves out.

    The test is skipped where the file is not at hand.
    """
    path = DATA / f"{model}.txt"
    if not path.is_file():
        pytest.skip("the profiles of PipeDream are not at hand")
    given = load_layer_profile(path)
    is_read = {reader for _, reader in given.edges}
    given = _without(given, {each.id for each in given.layers if each.what.startswith("Input")} - is_read)
    reads = {read for read, _ in given.edges}
    return _without(given, {each.id for each in given.layers if each.what.startswith("__getitem__")} - reads)


def chain_profile(drawn: list[tuple[float, float, float]]) -> LayerProfile:
    """A chain of layers, each of so many seconds, output bytes and weight bytes; a third of the time is forward."""
    layers = tuple(
        ProfiledLayer(f"node{i}", "Conv2d", seconds / 3, 2 * seconds / 3, (float(size),), False, float(weights))
        for i, (seconds, size, weights) in enumerate(drawn)
    )
    return LayerProfile("chain", layers, tuple((f"node{i}", f"node{i + 1}") for i in range(len(layers) - 1)))


def _without(given: LayerProfile, left_out: set[str]) -> LayerProfile:
    layers = tuple(layer for layer in given.layers if layer.id not in left_out)
    return replace(given, layers=layers, edges=tuple(ends for ends in given.edges if not left_out & set(ends)))
