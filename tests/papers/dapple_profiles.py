"""The profiles released with DAPPLE, for the batches of its tables."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphs.formats.pipedream import LayerProfile, load_layer_profile
from graphs.foundation import by_name
from graphs.problem import Problem
from graphs.transforms.batch import scaled

DATA = Path(__file__).parents[3] / "shared" / "data" / "dapple"
PROFILED = {"vgg-19": 32, "bert-48": 2}  # model -> samples of the profile


@cache
def profile(model: str) -> LayerProfile:
    """Without the layer of inputs, which the program leaves out; the test is skipped where the file is not at hand."""
    path = DATA / f"{model}-pbs-{PROFILED[model]}.txt"
    if not path.is_file():
        pytest.skip("the profiles of DAPPLE are not at hand")
    return load_layer_profile(path)


def without_input(given: LayerProfile) -> LayerProfile:
    """The profile as the program reads it: a layer that is called so takes no part."""
    inputs = {layer.id for layer in given.layers if layer.what.startswith("Input")}
    layers = tuple(layer for layer in given.layers if layer.id not in inputs)
    return replace(given, layers=layers, edges=tuple(ends for ends in given.edges if ends[0] not in inputs))


def problem_of(given: LayerProfile, times: float, testbed: str) -> Problem:
    """The profile for a batch so many times as large, on a testbed of the paper; times and activations grow with it."""
    return Problem(scaled(given.graph(), times), by_name.build("graphs.clusters", f"dapple:testbed={testbed}"))
