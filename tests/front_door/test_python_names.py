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
from torch.nn import Module

import placelab
from placelab.verbs import VERBS

FUNCTIONS = [*VERBS.values(), placelab.parallelize]


def test_all_that_is_exported_is_there_and_nothing_else_shows() -> None:
    assert dir(placelab) == sorted(placelab.__all__)
    assert {name for name in placelab.__all__ if getattr(placelab, name) is None} == set()
    assert placelab.Problem.__module__ == "graphs.problem"
    assert {"Problem", "OpGraph", "Cluster", "Device", "Plan", "Schedule", "Placer", "PlacerResult"} <= set(
        dir(placelab)
    )
    with pytest.raises(AttributeError, match="module 'placelab' has no attribute 'problem'"):
        _ = placelab.problem  # type: ignore[attr-defined]


def test_type_checkers_are_told_of_the_same_names() -> None:
    tree = ast.parse(Path(placelab.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    looked_up = {name: where if ":" in where else f"{where}:{name}" for name, where in placelab._NOUNS.items()}
    assert told == looked_up
    assert set(told) <= set(placelab.__all__)


def test_importing_the_module_imports_no_numbers() -> None:
    code = "import placelab, sys; print(*[name for name in ('numpy', 'numba', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("verb", FUNCTIONS, ids=lambda verb: verb.__name__)
def test_help_names_only_types_that_a_user_can_name(verb: Callable[..., object]) -> None:
    known: dict[str, Any] = {name: getattr(placelab, name) for name in placelab.__all__}
    known |= {each.__name__: each for each in (Path, Sequence, Mapping, Module, device)}
    known |= {"Any": Any, "Literal": Literal}
    signature = inspect.signature(verb)
    shown = [each.annotation for each in signature.parameters.values()] + [signature.return_annotation]
    for annotation in shown:
        assert eval(repr(annotation), known) is not None, annotation
