"""The names of placelab, read from `__init__.pyi`: type checkers and Python find the same, listed once."""

import ast
from importlib import import_module
from pathlib import Path


def listed() -> dict[str, tuple[str, str]]:
    """Name -> the module that defines it, and what it is called there."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {str(each.asname).lstrip("_"): (str(node.module), each.name) for node in imports for each in node.names}


def imported_from(module: str, name: str) -> object:
    """The object `name` of a module, which is imported if it was not yet."""
    value: object = getattr(import_module(module), name)
    return value
