"""docs/reference/command-line.md, from the verbs; `python -m tests.front_door.command_line_page` writes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

from evaluation.commands.verb_help import EXAMPLES
from placelab.verbs import VERBS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"
HEAD = """# Command line

`placelab VERB --help` prints the same. Every verb also takes `--json`, which prints the result as one JSON document.
Results go to stdout, everything else to stderr. Exit codes: 0 fine, 2 wrong use or input, 3 nothing fits in memory,
4 a run differs from its model, 130 interrupted.

This page is made of the verbs' signatures and docstrings by `python -m tests.front_door.command_line_page`.
"""


def document() -> str:
    """The page."""
    return HEAD + "".join(_section(name, verb) for name, verb in VERBS.items())


def _section(name: str, verb: Callable[..., object]) -> str:
    about, _, arguments = (inspect.getdoc(verb) or "").partition("\nArgs:\n")
    entries = dict(re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", arguments, re.DOTALL | re.MULTILINE))
    parameters = inspect.signature(verb).parameters.values()
    given = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    rows = [f"| {_flag(each)} | {_default(each)} | {_line(entries[each.name])} |" for each in parameters]
    words = " ".join(each.name.upper() if each.default is each.empty else f"[{each.name.upper()}]" for each in given)
    table = "\n".join(["| | default | |", "|---|---|---|", *rows])
    examples = "\n".join(line for verbs in EXAMPLES.values() for line in verbs.get(name, ()))
    head = f"\n## {name}\n\n`placelab {f'{name} {words}'.strip()}`\n\n{_paragraphs(about)}\n\n"
    return f"{head}```sh\n{examples}\n```\n\n{table}\n"


def _flag(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
        return f"`{parameter.name.upper()}`"
    name = parameter.name.replace("_", "-")
    return f"`--{name}`, `--no-{name}`" if parameter.default is True else f"`--{name}`"


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is parameter.empty or value is None or value == "" else f"`{value}`"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> str:
    return "\n\n".join(_line(paragraph) for paragraph in text.strip().split("\n\n"))


if __name__ == "__main__":
    DOCUMENT.write_text(document())
