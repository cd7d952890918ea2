"""The look-up by name: an extension is a file in its folder, and the file's name is its name.

Every extension file has a function `build` whose keywords are its knobs; a spec is a name with knobs,
`rnnlm:layers=4,steps=40`; the value of a knob that has no default may stand alone, `expert:split.json`. Installed
packages add theirs through the entry-point group `placelab.<folder>` (`placelab.placers`, `placelab.families`, ...),
each entry point naming such a module.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from graphs.errors import InputError

FOLDERS = ("graphs.families", "graphs.clusters", "envs.cost_models", "placers", "placers.networks")

_KNOB = re.compile(r"\w+=")
_PROJECT = Path(__file__).resolve().parent.parent


def names(folder: str) -> tuple[str, ...]:
    """Names of the extensions in a folder such as "graphs.families", sorted; imports none of them."""
    return tuple(sorted(_files(folder).keys() | _plugins(folder).keys()))


def module(folder: str, name: str) -> ModuleType:
    """The extension's module. Raises InputError, with what exists, for an unknown name."""
    plugins = _plugins(folder)
    if name in _files(folder):
        return importlib.import_module(f"{folder}.{name}")
    if name in plugins:
        return importlib.import_module(plugins[name])
    raise InputError(unknown(f"{_singular(folder)}", name, names(folder)))


def build(folder: str, spec: str) -> Any:  # each folder's contract says what its `build` returns
    """Build what a spec names. Raises InputError for an unknown or missing knob, or a value of the wrong type."""
    spec = expanded(folder, spec)
    name, _, rest = spec.partition(":")
    builder = module(folder, name).build
    needed = [knob.name for knob in inspect.signature(builder).parameters.values() if knob.default is knob.empty]
    if needed and "=" not in rest.partition(",")[0]:
        if not rest:
            raise InputError(f"{name!r} needs its knob {needed[0]!r}: {name}:{needed[0].upper()}")
        spec = f"{name}:{needed[0]}={rest}"
    return builder(**_typed(spec, builder, parse(spec)[1]))


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Split "name:key=value,key=value" into the name and its knobs, as text."""
    name, _, rest = spec.partition(":")
    knobs: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key or not value:
            raise InputError(f"{spec!r}: expected knobs as key=value,key=value after the colon, got {part!r}")
        if key in knobs:
            raise InputError(f"{spec!r}: knob {key!r} is given twice")
        knobs[key] = value
    return name, knobs


def specs(text: str) -> list[str]:
    """Split "metis:seeds=20,balance=memory,heft" into specs: what follows a comma is a knob if it is key=value."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if found and _KNOB.match(part):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def expanded(folder: str, spec: str) -> str:
    """The spec with the knobs of the configuration that it names: "resnet:resnet-50,batch=32".

    A knob given beside the configuration replaces its value. Raises InputError for an unknown configuration.
    """
    name, _, rest = spec.partition(":")
    configuration, _, others = rest.partition(",")
    if not configuration or "=" in configuration:
        return spec
    known = constants(folder, name).get("CONFIGURATIONS")
    if not isinstance(known, dict):
        return spec
    if configuration not in known:
        raise InputError(f"{spec!r}: {unknown(f'configuration of {name}', configuration, known)}")
    knobs = parse(f"{name}:{known[configuration]}")[1] | parse(f"{name}:{others}")[1]
    return f"{name}:{','.join(f'{key}={value}' for key, value in knobs.items())}"


def constants(folder: str, name: str) -> dict[str, Any]:
    """The literal constants of an extension's file and, as "doc", its first line; read without importing it."""
    files = _files(folder)
    if name not in files:
        found = module(folder, name)
        return {**vars(found), "doc": (found.__doc__ or "").strip().partition("\n")[0]}
    tree = ast.parse(files[name].read_text())
    values: dict[str, Any] = {"doc": (ast.get_docstring(tree) or "").partition("\n")[0]}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values


def unknown(what: str, name: str, existing: Iterable[str]) -> str:
    """The sentence for an unknown name: what was asked for, the nearest one, and all that exist."""
    options = list(existing)
    nearest = difflib.get_close_matches(name, options, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ";"
    return f"unknown {what} {name!r}{hint} there are: {', '.join(options)}"


def _files(folder: str) -> dict[str, Path]:
    directory = _PROJECT.joinpath(*folder.split("."))
    return {path.stem: path for path in directory.glob("*.py") if not path.stem.startswith("_")}


def _plugins(folder: str) -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=f"placelab.{folder.rpartition('.')[2]}")}


def _singular(folder: str) -> str:
    word = folder.rpartition(".")[2].replace("_", " ")
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def _typed(spec: str, builder: Callable[..., object], texts: dict[str, str]) -> dict[str, object]:
    hints = get_type_hints(builder)
    knobs = list(inspect.signature(builder).parameters)
    values: dict[str, object] = {}
    for key, text in texts.items():
        if key not in knobs:
            name = spec.partition(":")[0]
            raise InputError(f"{spec!r}: {unknown('knob', key, knobs)}" if knobs else f"{name!r} has no knobs")
        try:
            values[key] = _FROM_TEXT[hints[key]](text)
        except (ValueError, KeyError):
            kind = getattr(hints[key], "__name__", hints[key])
            raise InputError(f"{spec!r}: expected {key} to be of type {kind}, got {text!r}") from None
    return values


_FROM_TEXT: dict[object, Callable[[str], object]] = {
    int: int,
    float: float,
    str: str,
    bool: {"true": True, "yes": True, "false": False, "no": False}.__getitem__,
}
