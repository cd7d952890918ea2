"""What exists by name, read without importing it: listing must be quick."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from graphs import by_name
from graphs.suites import SUITES, suite_specs

Kind = Literal["all", "families", "suites", "clusters", "placers", "networks", "cost_models", "recipes"]
KINDS = [kind for kind in get_args(Kind) if kind != "all"]
FOLDERS = {folder.rpartition(".")[2]: folder for folder in by_name.FOLDERS}
RECIPES = Path(__file__).resolve().parent.parent / "training" / "recipes"


@dataclass(frozen=True)
class Listing:
    """Entries of each kind of thing."""

    entries: dict[str, list[dict[str, object]]]  # kind -> name, about, configurations and splits

    @classmethod
    def of(cls, kinds: list[str]) -> Listing:
        """List some of KINDS."""
        return cls({kind: _entries(kind) for kind in kinds})

    def to_json(self) -> object:
        """The entries of the only kind, or those of every kind by its name."""
        return next(iter(self.entries.values())) if len(self.entries) == 1 else self.entries

    def __rich__(self) -> RenderableType:
        return Group(*(_table(kind, entries) for kind, entries in self.entries.items()))


def _entries(kind: str) -> list[dict[str, object]]:
    if kind == "recipes":
        return [{"name": path.stem, "about": _first_comment(path)} for path in sorted(RECIPES.glob("*.toml"))]
    if kind == "suites":
        return [_suite(name) for name in SUITES]
    return [_entry(FOLDERS[kind], name) for name in by_name.names(FOLDERS[kind])]


def _suite(name: str) -> dict[str, object]:
    problems = [f"{graph}@{cluster}" for graph, cluster in suite_specs(name)]
    about = f"{(inspect.getdoc(SUITES[name]) or '').removesuffix('.')}: {len(problems)} problems"
    return {"name": name, "about": about, "problems": problems}


def _first_comment(path: Path) -> str:
    return path.read_text().partition("\n")[0].lstrip("# ")


def _entry(folder: str, name: str) -> dict[str, object]:
    constants = by_name.constants(folder, name)
    entry: dict[str, object] = {"name": name, "about": constants["doc"]}
    if "TRAIN" in constants:
        splits = {"train": list(constants["TRAIN"]), "test": list(constants["TEST"])}
        return entry | {"configurations": list(constants.get("CONFIGURATIONS", ())), "splits": splits}
    if "CONFIGURATIONS" in constants:
        return entry | {"configurations": list(constants["CONFIGURATIONS"])}
    return entry


def _table(kind: str, entries: list[dict[str, object]]) -> Table:
    table = Table(title=kind.replace("_", " "), title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    for entry in entries:
        configurations = entry.get("configurations")
        example = Text(f"{entry['name']}:{configurations[0]}" if isinstance(configurations, list) else "", style="dim")
        table.add_row(Text(str(entry["name"]), style="bold"), str(entry["about"]), example)
    return table
