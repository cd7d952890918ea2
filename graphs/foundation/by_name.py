"""Look-up by name: an extension is a file in its folder, and the file's name is its name.

Every extension file has a `build` whose keywords are its knobs: a function, or a dataclass. A spec says what to build:

- `rnnlm:layers=4,steps=40`: a name with knobs; the name of a knob that has no default may be left out,
  `expert:split.json`;
- `path/to/my.py:build`, or `path/to/my.py:build:knob=3,other=x`: a function in a user's own file, and its knobs after
  a second colon. It returns what the folder's own extensions return.

Installed packages add names through the entry-point group `placelab.<folder>` (`placelab.placers`,
`placelab.families`, ...), as `graphs.foundation.plugins` says; a built-in name wins over theirs.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from graphs.foundation.errors import DoesNotFitError, InputError, reason
from graphs.foundation.errors import unknown as unknown
from graphs.foundation.knobs import Builder, at_commas, knobs_of, needed, texts, typed, written
from graphs.foundation.plugins import plugins
from graphs.foundation.user_code import user_callable

FOLDERS = (
    "graphs.families",
    "graphs.clusters",
    "graphs.operators",
    "envs.costs.cost_models",
    "envs.objectives",
    "envs.orders",
    "envs.pass_orders",
    "envs.rewards",
    "placers",
    "placers.learned.gdp.networks",
    "training.ppo_rewards",
)
LEAST = {"graphs.families": 1, "graphs.clusters": 1}  # whole numbers there (layers, devices); elsewhere 0

Built = TypeVar("Built")

_KNOB = re.compile(r"\w+=")
_OWN = re.compile(r"(?P<function>.+?\.py:\w+)(?::(?P<knobs>.*))?")
_NAMED = re.compile(r"\w+:(?:[^=/]*,)?\w+=")  # a name with knobs, of which one may be a function in a file
_PROJECT = Path(__file__).resolve().parents[2]


class Own(NamedTuple):
    """A function in a user's own file."""

    file: Path
    function: str  # "path/to/my.py:build"
    knobs: str | None  # "knob=3,other=x"


@dataclass(frozen=True)
class OwnExtension(Generic[Built]):
    """What a function in a user's own file built; its name is the spec that builds it again."""

    folder: ClassVar[str]  # of placelab's own extensions of this kind

    name: str  # "my.py:build:knob=3"
    file: Path
    built: Built

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        """Another process builds it again: it cannot import the user's file by a name."""
        return build, (self.folder, self.name)

    @classmethod
    def checked(cls, spec: str, built: Any, what: str, method: str) -> Any:
        """What `build` of a user's file or of another package returned; that of a file becomes one of these.

        Raises InputError for what lacks the method that all of the kind have.
        """
        if not callable(getattr(built, method, None)):
            raise InputError(f"{spec!r}: expected {what}, with a method `{method}`, got {type(built).__name__}")
        found = own(spec)
        return cls(spec, found.file, built) if found else built


@dataclass(frozen=True)
class Named:
    """An extension that is a dataclass of its knobs, named by the spec that builds it again."""

    @property
    def name(self) -> str:
        """Its file's name, and the knobs that differ from their defaults: "metis:seeds=20,default=true"."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        changed = {knob: value for knob, (value, default) in values.items() if value != default}
        return spec_of(type(self).__module__.rpartition(".")[2], changed)


@dataclass(frozen=True)
class Extension(Generic[Built]):
    """An extension that knows its name. What it names is built when it is first used, and kept."""

    folder: str
    name: str  # the spec that builds it

    @classmethod
    def of(cls, folder: str, what: Extension[Built] | str, dash: str = "_") -> Extension[Built]:
        """The one that a spec names; its name is written with `dash` where words meet, "max-load" for "max_load" too.

        Raises InputError for an unknown name. Knobs, and a user's own file, are checked when it is built.
        """
        if isinstance(what, Extension):
            return what
        if not isinstance(what, str):
            raise InputError(f"expected a {_singular(folder)} as text, got {type(what).__name__}")
        if own(what):
            return cls(folder, what)
        name, colon, rest = what.partition(":")
        if not exists(folder, underscored := name.replace("-", "_")):
            known = [each.replace("_", dash) for each in names(folder)]
            raise InputError(unknown(_singular(folder), name, known))
        return cls(folder, f"{underscored.replace('_', dash)}{colon}{rest}")

    @property
    def file(self) -> Path | None:
        """The user's own file that has it, if one does."""
        found = own(self.name)
        return found and found.file

    @property
    def built(self) -> Built:
        """What the folder's extensions build; again once a user's file has changed. Raises InputError as `build`."""
        file = self.file
        source = (file.resolve(), file.read_bytes()) if file and file.is_file() else None
        built: Built = _built(self.folder, self.name, source)
        return built

    def loaded(self) -> Extension[Built]:
        """Itself, once it is built: all that can be refused is. Raises InputError as `build`."""
        assert self.built is not None
        return self

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return repr(self.name)


@lru_cache(maxsize=256)
def _built(
    folder: str,
    name: str,
    source: tuple[Path, bytes] | None,  # noqa: ARG001 - a user's file is run again if it changed, or is another
) -> Any:
    """What an `Extension` builds."""
    if own(name):
        return build(folder, name)
    written, colon, rest = name.partition(":")
    return build(folder, f"{written.replace('-', '_')}{colon}{rest}")


def built_in(folder: str) -> tuple[str, ...]:
    """Names of placelab's own extensions in a folder such as "graphs.families", sorted; imports none of them.

    Suites and other published results use these alone: they must not depend on what else is installed.
    """
    return tuple(sorted(_files(folder)))


def names(folder: str) -> tuple[str, ...]:
    """Names of all extensions of a folder, sorted, those of installed packages among them; imports none of them."""
    return tuple(sorted(_files(folder).keys() | plugins(_kind(folder)).keys()))


def exists(folder: str, name: str) -> bool:
    """Whether an extension of a folder has a name; lists no folder, as `names` does."""
    return _file(folder, name) is not None or name in plugins(_kind(folder))


def module(folder: str, name: str) -> Any:  # a module, or what a package has in its place
    """What has the extension's `build`.

    Raises InputError, with what exists, for an unknown name, and for an extension whose package cannot be imported.
    """
    if file := _file(folder, name):
        return importlib.import_module(".".join(file.relative_to(_PROJECT).with_suffix("").parts))
    installed = plugins(_kind(folder))
    if name not in installed:
        raise InputError(unknown(_singular(folder), name, names(folder)))
    try:
        return installed[name].load()
    except InputError as error:
        raise InputError(f"{_singular(folder)} {error}") from error


def build(folder: str, spec: str) -> Any:  # each folder's contract says what its `build` returns
    """Build what a spec names. Raises InputError as `check` does, and for knobs that do not go together."""
    builder, knobs = builder_and_knobs(folder, spec)
    try:
        built = builder(**knobs)
    except (InputError, DoesNotFitError):
        raise
    except Exception as error:  # sizes that PyTorch refuses, or code that is not ours
        raise InputError(f"{spec!r} cannot be built: {reason(error)}") from error
    if is_built_in(folder, spec):
        return built
    return importlib.import_module(folder).checked(spec, built)


def builder_and_knobs(folder: str, spec: str) -> tuple[Builder, dict[str, object]]:
    """The builder that a spec names, and the values of the knobs that it gives. Raises InputError as `check` does."""
    if not isinstance(spec, str):
        raise InputError(f"expected a {_singular(folder)} as text, got {type(spec).__name__}")
    if mine := own(spec):
        name, knobs = mine.function, mine.knobs
        builder: Builder = user_callable(name)
    else:
        spec = expanded(folder, spec)
        name, colon, rest = spec.partition(":")
        knobs = rest if colon else None
        builder = module(folder, name).build
    if (required := needed(builder)) and "=" not in (knobs or "").partition(",")[0]:
        if not knobs:
            raise InputError(f"{name!r} needs its knob {required[0]!r}: {name}:{required[0].upper()}")
        knobs = f"{required[0]}={knobs}"
    given = {} if knobs is None else texts(spec, knobs)
    return builder, typed(spec, name, builder, given, least=None if mine else LEAST.get(folder, 0))


def check(folder: str, spec: str) -> None:
    """Check all of a spec that can be checked without building what it names.

    Raises InputError for an unknown name, an unknown or missing knob, or a value that is of the wrong type, not finite,
    or too small.
    """
    builder_and_knobs(folder, spec)


def knobs(folder: str, spec: str) -> tuple[str, ...]:
    """The knobs that what a spec names has. Raises InputError as `check` does."""
    builder_and_knobs(folder, spec)
    file = own(spec)
    return tuple(knobs_of(user_callable(file.function) if file else module(folder, spec.partition(":")[0]).build))


def own(spec: str) -> Own | None:
    """The function of a spec such as "my.py:build:knob=3"; None for a name. Raises InputError for a file alone."""
    if not _NAMED.match(spec) and (match := _OWN.fullmatch(spec)):
        return Own(Path(match["function"].rpartition(":")[0]), match["function"], match["knobs"])
    file = spec.partition(":")[0]
    if file.endswith(".py"):
        name, comma, knobs = spec.removeprefix(f"{file}:").partition(",")
        if comma and name.isidentifier():
            raise InputError(f"{spec!r}: knobs follow a second colon; write {file}:{name}:{knobs}")
        raise InputError(f"{spec!r}: expected the name of a function after the file, as in {file}:NAME")
    return None


def is_built_in(folder: str, spec: str) -> bool:
    """Whether a spec names one of placelab's own extensions."""
    return own(spec) is None and _file(folder, spec.partition(":")[0]) is not None


def parse(spec: str) -> tuple[str, dict[str, str]]:
    """Split "name:key=value,key=value" into the name and its knobs, as text."""
    name, colon, rest = spec.partition(":")
    return name, texts(spec, rest) if colon else {}


def spec_of(name: str, knobs: Mapping[str, object]) -> str:
    """The text that `parse` splits into a name and the values of its knobs, "name:key=value,key=value"."""
    return f"{name}:{','.join(f'{knob}={written(value)}' for knob, value in knobs.items())}" if knobs else name


def specs(text: str) -> list[str]:
    """Split "metis:seeds=20,balance=memory,heft" into specs: what follows a comma is a knob if it is key=value.

    Raises InputError for an empty spec.
    """
    if not isinstance(text, str):
        raise InputError(f"expected names as text, with commas between them, got {type(text).__name__}")
    found: list[str] = []
    for part in at_commas(text):
        if not part.strip():
            raise InputError(f"{text!r}: expected a name before, between and after commas; one is empty")
        if found and _KNOB.match(part):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def expanded(folder: str, spec: str) -> str:
    """The spec with the knobs of the configuration that it names: "resnet:resnet-50,batch=32".

    A knob given in addition to the configuration replaces its value. Raises InputError for an unknown configuration.
    """
    name, _, rest = spec.partition(":")
    configuration, comma, others = rest.partition(",")
    if not configuration or "=" in configuration:
        return spec
    known = constants(folder, name).get("CONFIGURATIONS")
    if not isinstance(known, dict):
        return spec
    if configuration not in known:
        raise InputError(f"{spec!r}: {unknown(f'configuration of {name}', configuration, known)}")
    knobs = parse(f"{name}:{known[configuration]}")[1] | (texts(spec, others) if comma else {})
    return spec_of(name, knobs)


def constants(folder: str, name: str) -> dict[str, Any]:
    """The literal constants of an extension's file and, as "doc", its first line; read without importing it.

    Raises InputError for a user's own file that is missing or no Python.
    """
    mine = own(name)
    file = mine.file if mine else _file(folder, name)
    if file is None:
        found = module(folder, name)
        literals = {key: getattr(found, key) for key in dir(found) if key.isupper()}
        return {"doc": (found.__doc__ or "").strip().partition("\n")[0], **literals}
    try:
        return dict(_literals(file.read_text()))
    except OSError:
        raise InputError(f"{file}: no such Python file; expected path/to/file.py:callable") from None
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{file}: {reason(error)}") from error


@cache
def _literals(source: str) -> Mapping[str, Any]:
    """What `constants` says of a file's text."""
    tree = ast.parse(source)
    values: dict[str, Any] = {"doc": (ast.get_docstring(tree) or "").partition("\n")[0]}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values


def _file(folder: str, name: str) -> Path | None:
    """The file of one name; None if there is none. Lists no folder: each problem's cost model is looked up so."""
    if not name.isidentifier() or name.startswith("_") or name != name.lower():  # some systems would find Metis, too
        return None
    directory = _PROJECT.joinpath(*folder.split("."))
    files = directory / "learned" / name / "placer.py", directory / f"{name}.py"
    return next((file for file in files if os.path.isfile(file)), None)  # noqa: PTH113 - a name may be too long for a path


def _files(folder: str) -> dict[str, Path]:
    directory = _PROJECT.joinpath(*folder.split("."))
    files = {path.stem: path for path in directory.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name: path for path in directory.glob("learned/*/placer.py")}


def _kind(folder: str) -> str:
    return folder.rpartition(".")[2]


def _singular(folder: str) -> str:
    word = _kind(folder).replace("_", " ")
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")
