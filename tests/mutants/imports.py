"""Modules of the project, imported with a mutant in them, or noting which of their functions are called.

Files stay as they are, and with them the compiled code that is kept for them. What a test starts imports in the
same way: `environment` puts a `sitecustomize` on the path of every process of Python.
"""

from __future__ import annotations

import ast
import builtins
import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

from tests.mutants.mutants import Mutant, functions_of, is_compiled, key

PROJECT = Path(__file__).parents[2]
FOLDERS = ("graphs", "envs", "placers")
ROOT = "PLACELAB_TESTS_ROOT"  # the folder that holds FOLDERS
MUTANT = "PLACELAB_TESTS_MUTANT"  # the mutant, as JSON
CALLS = "PLACELAB_TESTS_CALLS"  # a folder: calls are noted in its file "calls"
NOTE = "_placelab_called"
SITE = "from tests.mutants.imports import install\ninstall()\n"

seen: set[str] = set()
"""What this process has noted for its present test."""


def environment(site: Path, root: Path, **settings: str) -> Mapping[str, str]:
    """Variables for a process that imports like this, and all processes that it starts. `site` is an empty folder."""
    (site / "sitecustomize.py").write_text(SITE)
    paths = os.pathsep.join(map(str, (site, root, PROJECT)))
    return os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", ROOT: str(root.resolve())} | settings


def note(line: str) -> None:
    """Append a line to the file of calls. Lines of several processes do not mix: each is one short write."""
    file = os.open(Path(os.environ[CALLS]) / "calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode() + b"\n")
    os.close(file)


def install() -> None:
    """Import from now on as the environment says."""
    if MUTANT in os.environ or CALLS in os.environ:
        sys.meta_path.insert(0, _Finder())
        setattr(builtins, NOTE, _called)


def _called(function: str) -> None:
    if function not in seen:
        seen.add(function)
        note(f"{os.environ.get('PYTEST_CURRENT_TEST', '')}\t{function}")


class _Finder:
    """Finds the modules of FOLDERS alone."""

    def __init__(self) -> None:
        self.root = Path(os.environ[ROOT])
        self.mutant = msgspec.json.decode(os.environ[MUTANT], type=Mutant) if MUTANT in os.environ else None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in FOLDERS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin and spec.origin.endswith(".py"):
            file = str(Path(spec.origin).resolve().relative_to(self.root))
            if self.mutant is None:
                spec.loader = _Noting(name, spec.origin, file)
            elif file == self.mutant.file:
                spec.loader = _Mutated(name, spec.origin, self.mutant)
        return spec


class _Mutated(SourceFileLoader):
    """Compiles a file with a mutant in it, and keeps nothing."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType | None:
        return compile(self.mutant.source(Path(self.path).read_text()), self.path, "exec", dont_inherit=True)


class _Noting(SourceFileLoader):
    """Compiles a file whose functions begin with a note of their call."""

    def __init__(self, name: str, path: str, file: str) -> None:
        super().__init__(name, path)
        self.file = file

    def get_code(self, fullname: str) -> CodeType | None:
        kept = Path(os.environ[CALLS]) / fullname
        if kept.exists():
            code: CodeType = marshal.loads(kept.read_bytes())
            return code
        tree = ast.parse(Path(self.path).read_text())
        for function in functions_of(tree):
            if not is_compiled(function):
                _begin_with_note(function, key(self.file, function))
        made: CodeType = compile(tree, self.path, "exec", dont_inherit=True)
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_bytes(marshal.dumps(made))
        new.rename(kept)
        return made


def _begin_with_note(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> None:
    has_docstring = ast.get_docstring(function, clean=False) is not None
    if has_docstring and len(function.body) == 1:
        return  # declares what others do
    first = function.body[has_docstring]
    call = ast.Expr(ast.Call(ast.Name(NOTE, ast.Load()), [ast.Constant(name)], []))
    for node in ast.walk(call):
        ast.copy_location(node, first)
    function.body.insert(has_docstring, call)
