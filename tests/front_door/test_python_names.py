"""The names of the module `placelab`: all that users import, imported when it is asked for."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from torch import device
from torch.fx import GraphModule
from torch.nn import Module

import placelab
from envs.simulation import simulator
from evaluation.commands import graph_verbs
from placelab.verbs import VERBS

FUNCTIONS = [*VERBS.values(), placelab.parallelize]


def test_all_that_is_exported_is_there_and_nothing_else_shows() -> None:
    assert dir(placelab) == sorted(vars(placelab)["__all__"])
    assert {name for name in dir(placelab) if getattr(placelab, name) is None} == set()
    assert placelab.Problem.__module__ == "graphs.problem"
    assert {"Problem", "OpGraph", "Cluster", "Device", "Plan", "Schedule", "Placer", "PlacerResult"} <= set(
        dir(placelab)
    )
    with pytest.raises(AttributeError, match="module 'placelab' has no attribute 'problem'"):
        _ = placelab.problem  # type: ignore[attr-defined]


def test_a_name_is_what_type_checkers_take_it_for() -> None:
    assert placelab.simulate_plan is simulator.simulate
    assert placelab.simulate is graph_verbs.simulate
    stub = ast.parse(Path(placelab.__file__).with_suffix(".pyi").read_text())
    exported = {each.asname for node in stub.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert exported - {"_simulate_plan"} == set(dir(placelab)) - {"simulate_plan"}


def test_importing_the_module_imports_no_numbers() -> None:
    code = "import placelab, sys; print(*[name for name in ('numpy', 'numba', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("verb", FUNCTIONS, ids=lambda verb: verb.__name__)
def test_help_names_only_types_that_a_user_can_name(verb: Callable[..., object]) -> None:
    known: dict[str, Any] = {name: getattr(placelab, name) for name in dir(placelab)}
    known |= {each.__name__: each for each in (Path, Sequence, Mapping, Module, GraphModule, device)}
    known |= {"Any": Any, "Literal": Literal}
    signature = inspect.signature(verb)
    shown = [each.annotation for each in signature.parameters.values()] + [signature.return_annotation]
    for annotation in shown:
        assert eval(repr(annotation), known) is not None, annotation
