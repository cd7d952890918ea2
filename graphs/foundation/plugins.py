"""Extensions that other installed packages bring, through entry points of the groups `placelab.placers`, and so on.

The value of an entry point is a module with a function `build`, as the files of placelab's own folders are, or
`module:attribute`, where the attribute is such a function or has one. A package that cannot be imported causes no
error until its extension is used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from graphs.foundation.errors import InputError, located, reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Plugin:
    """The extensions of one name and kind in installed packages; more than one cannot be used."""

    name: str
    kind: str  # "placers"
    points: tuple[EntryPoint, ...]  # more than one if several packages use the name

    @property
    def package(self) -> str:
        """The name of the package; of all, if there are several."""
        return " and ".join(sorted(point.dist.name if point.dist else "unknown" for point in self.points))

    def load(self) -> Any:  # a module, or what stands for one
        """What has the function `build`. Raises InputError, naming the package and the reason, if nothing has."""
        with located(f"{self.name!r} of the package {self.package} cannot be used"):
            return self._loaded()

    def _loaded(self) -> Any:
        if len(self.points) > 1:
            raise InputError("several packages have one of this name; uninstall all but one")
        point = self.points[0]
        try:
            with redirect_stdout(sys.stderr):  # standard output may be read by a program
                found = point.load()
        except (Exception, SystemExit) as error:  # the package's own code
            raise InputError(f"importing {point.value} fails with {reason(error)}") from error
        if callable(getattr(found, "build", None)):
            return found
        if not point.attr or not callable(found):
            raise InputError(f"{point.value} has no function build")
        others = {name: value for name, value in vars(sys.modules[point.module]).items() if not name.startswith("_")}
        return SimpleNamespace(**others | {"__doc__": found.__doc__, "build": found})


def plugins(kind: str) -> Mapping[str, Plugin]:
    """Plug-ins of a kind such as "placers", by name; imports none of them."""
    return installed().get(kind, {})


@cache
def installed() -> dict[str, dict[str, Plugin]]:
    """The plug-ins of all installed packages by kind and name, read once: each package has a file to open."""
    from importlib.metadata import entry_points  # imported late: slow to import, and --help does without

    points, found = entry_points(), dict[str, dict[str, Plugin]]()
    for group in points.groups:
        prefix, _, kind = group.partition(".")
        if prefix == "placelab":
            by_name: dict[str, list[EntryPoint]] = {}
            for point in points.select(group=group):
                by_name.setdefault(point.name, []).append(point)
            found[kind] = {name: Plugin(name, kind, tuple(by_name[name])) for name in sorted(by_name)}
    return found
