"""What exists by name, read without importing it: listing must be quick."""

from __future__ import annotations

import inspect
import re
import shutil
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from evaluation.records.printed import Printed
from graphs.files.suites import SUITES, suite_specs
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.knobs import knobs_of, written
from graphs.foundation.plugins import plugins

KINDS = (
    "families", "suites", "clusters", "devices", "links", "operators", "placers", "networks", "cost_models",
    "objectives", "orders", "pass_orders", "rewards", "ppo_rewards", "recipes",
)  # fmt: skip
FOLDERS = {folder.rpartition(".")[2]: folder for folder in by_name.FOLDERS}
RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"
CATALOGUE = Path(__file__).resolve().parents[2] / "graphs" / "devices" / "catalogue.toml"
FIGURES = {  # what a number of the catalogue is
    "flops_per_second": "{} in fp32", "bytes_per_second": "memory bandwidth {}", "memory": "memory {}",
    "launch": "launch {}", "collectives": "collectives {}", "link": "link {}", "bandwidth": "bandwidth {}",
    "latency": "latency {}",
}  # fmt: skip
OWN = "file.py:build:knob=3, a function of your own"
ELSEWHERE = {  # what may be given instead of a name
    **dict.fromkeys(KINDS, f"or {OWN}"),
    "families": "or a graph file (*.graph.json, *.txt, *.json, *.onnx, *.et), or file.py:callable, a model of your own",
    "suites": "or several with commas between them",
    "clusters": f"or a cluster file (*.toml, *.json), or {OWN}",
    "devices": "that clusters and cluster files name; a cluster file may add its own",
    "links": "that clusters and cluster files name; a cluster file may add its own",
    "operators": "in index notation, so that ops of these kinds can be divided; docs/splits.md describes another one",
    "placers": f"or the run folder of a trained one, or {OWN}",
    "cost_models": f"or auto, which follows from what the graph knows, or {OWN}",
    "recipes": "or a recipe file (*.toml)",
}


@dataclass(frozen=True)
class Listing(Printed):
    """Entries of each kind of thing."""

    entries: dict[str, list[dict[str, object]]]  # kind -> name, about, package, note, configurations and splits

    @classmethod
    def of(cls, kinds: list[str]) -> Listing:
        """List some of KINDS."""
        return cls({kind: _entries(kind) for kind in kinds})

    @classmethod
    def of_name(cls, name: str) -> Listing:
        """What has a name, of each kind that has one of it, with its knobs. Raises InputError if there is none."""
        found = {kind: folder for kind, folder in FOLDERS.items() if kind in KINDS and by_name.exists(folder, name)}
        if not found:
            every = [each for kind in KINDS if kind in FOLDERS for each in by_name.names(FOLDERS[kind])]
            raise InputError(
                by_name.unknown("kind of thing", name, ["all", *KINDS, *get_close_matches(name, every, n=1)])
            )
        return cls({
            kind: [entry | {"knobs": _knobs(folder, name)} for entry in _entries(kind) if entry["name"] == name]
            for kind, folder in found.items()
        })  # fmt: skip

    def to_json(self) -> object:
        """The entries of the only kind, or those of every kind by its name."""
        return next(iter(self.entries.values())) if len(self.entries) == 1 else self.entries

    def _shown(self) -> RenderableType:
        """As wide as the terminal, or as COLUMNS if set; 80 columns where neither is known, as in a log."""
        tables = Group(*(_table(kind, entries) for kind, entries in self.entries.items()))
        return Constrain(tables, shutil.get_terminal_size().columns)


def _entries(kind: str) -> list[dict[str, object]]:
    if kind == "recipes":
        files = sorted(RECIPES.glob("*.toml"))
        return [{"name": file.stem, "about": _first_sentence(file.read_text())} for file in files]
    if kind == "suites":
        return [_suite(name) for name in SUITES]
    if kind in ("devices", "links"):
        return [_catalogued(name, entry) for name, entry in tomllib.loads(CATALOGUE.read_text())[kind].items()]
    folder, installed = FOLDERS[kind], plugins(kind)
    entries = []
    for name in by_name.names(folder):
        try:
            entry = _entry(name, by_name.constants(folder, name))
        except InputError as error:  # an extension of an installed package that cannot be used
            entry = {"name": name, "about": "", "package": installed[name].package, "note": str(error)}
        if name not in by_name.built_in(folder):
            entry["package"] = installed[name].package
        elif name in installed:
            package = installed[name].package
            entry["note"] = f"one of this name of the package {package} is not used: the built-in wins"
        entries.append(entry)
    return entries


def _knobs(folder: str, name: str) -> dict[str, str]:
    """The knobs of what has a name, as specs write their defaults; "" of one that must be given."""
    builder = getattr(by_name.module(folder, name), "build", None)
    knobs = knobs_of(builder).items() if callable(builder) else ()
    return {knob: "" if given.default is given.empty else written(given.default) for knob, given in knobs}


def _first_sentence(recipe: str) -> str:
    """Of the comment that a recipe begins with."""
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), recipe.splitlines()))
    return re.split(r"(?<=\.)\s", comment)[0]


def _suite(name: str) -> dict[str, object]:
    problems = [f"{graph}@{cluster}" for graph, cluster in suite_specs(name)]
    about = f"{(inspect.getdoc(SUITES[name]) or '').removesuffix('.')}: {len(problems)} problems"
    return {"name": name, "about": about, "problems": problems}


def _catalogued(name: str, entry: dict[str, Any]) -> dict[str, object]:
    """A device or a link: its numbers as they are written in the catalogue, and what they are from."""
    figures = {key: value for key, value in entry.items() if key not in ("about", "kind", "source")}
    peaks = [f"{peak} in {precision}" for precision, peak in figures.get("flops_by_precision", {}).items()]
    said = [FIGURES[key].format(value) for key, value in figures.items() if isinstance(value, str)]
    about = f"{entry['about']}: {', '.join([*said[:1], *peaks, *said[1:]])}"
    return {"name": name, "about": about, **figures, "source": entry.get("source", "")}


def _entry(name: str, constants: dict[str, Any]) -> dict[str, object]:
    entry: dict[str, object] = {"name": name, "about": constants["doc"]}
    if "CONFIGURATIONS" in constants:
        entry["configurations"] = _listed(constants, "CONFIGURATIONS")
    if "TRAIN" in constants:
        splits = {"train": _listed(constants, "TRAIN"), "test": _listed(constants, "TEST")}
        return {"configurations": []} | entry | {"splits": splits}
    return entry


def _listed(constants: dict[str, Any], name: str) -> list[str]:
    value = constants.get(name)
    return [str(each) for each in value] if isinstance(value, list | tuple | dict) else []


def _table(kind: str, entries: list[dict[str, object]]) -> Table:
    """A row for each name: what it is, an example with knobs, the package that adds it and what is wrong with it."""
    title = Text(kind.replace("_", " "), style="italic")
    title.append(f" ({ELSEWHERE[kind]})", style="dim")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for entry in entries:
        cell = Text(str(entry["about"]))
        if isinstance(configurations := entry.get("configurations"), list) and configurations:
            cell.append(f" {entry['name']}:{configurations[0]}", style="dim")
        if isinstance(knobs := entry.get("knobs"), dict):
            listed = ", ".join(f"{knob}={value}" for knob, value in knobs.items())
            cell.append(f"\nknobs: {listed}" if listed else "\nno knobs")
        if "package" in entry:
            cell.append(f" [package {entry['package']}]", style="dim")
        if "note" in entry:
            cell.append(f" {entry['note']}", style="yellow")
        table.add_row(Text(str(entry["name"]), style="bold"), cell)
    return table
