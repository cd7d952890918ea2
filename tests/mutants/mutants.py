"""Mutants: small faults put into functions, one at a time, which some test should notice (DeMillo et al. 1978).

A function is drawn first, then a fault in it, so that long functions are not all that is tested. Nothing is changed
that no test can notice: docstrings, annotations, messages of errors and logs, what is printed about an object.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """A change of one expression or statement."""

    file: str  # relative to the project's folder
    function: str
    is_compiled: bool
    first_line: int  # of the function, its decorators among it
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    def source(self, text: str) -> str:
        """The file's text with the mutant in it. Columns are in bytes of UTF-8, as `ast` gives them."""
        lines = text.encode().splitlines(keepends=True)
        head, tail = lines[self.line - 1][: self.column], lines[self.end_line - 1][self.end_column :]
        lines[self.line - 1 : self.end_line] = [head + self.after.encode() + tail]
        return b"".join(lines).decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}: {self.before} -> {self.after}"


_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
_CALLED = {
    "any": "all", "all": "any", "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum",
    "argmin": "argmax", "argmax": "argmin", "cumsum": "cumprod", "floor": "ceil",
    "ceil": "floor", "ones": "zeros", "zeros": "ones", "logical_and": "logical_or", "logical_or": "logical_and",
}  # fmt: skip
_COMPILED = {"compiled", "compiled_with_generator", "inlined", "subroutine"}
_NOT_TESTED = {"__repr__", "__str__"}
_SAID = {"warn", "warning", "info", "debug", "error", "print", "InputError", "TypeVar", "cast", "NewType"}


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Fault = tuple[ast.AST, str]  # what is replaced, and by which source


def drawn(root: Path, folders: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` different mutants of functions of these folders, the same for the same seed and source."""
    files = [file for folder in folders for file in sorted((root / folder).rglob("*.py"))]
    functions = [(file, each) for file in files for each in _functions(file)]
    draw = random.Random(seed)
    chosen: dict[Mutant, None] = {}
    while len(chosen) < count and functions:
        file, function = draw.choice(functions)
        if faults := list(_faults(function)):
            chosen[_mutant(file, root, function, *draw.choice(faults))] = None
    return list(chosen)


def _functions(file: Path) -> Iterator[_Function]:
    return (each for each in functions_of(ast.parse(file.read_text())) if each.name not in _NOT_TESTED)


def functions_of(tree: ast.Module) -> Iterator[_Function]:
    """All functions of a module, those inside of others among them."""
    return (each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def is_compiled(function: _Function) -> bool:
    """Whether numba compiles a function, which then runs no Python."""
    return any(isinstance(each, ast.Name) and each.id in _COMPILED for each in function.decorator_list)


def first_line(function: _Function) -> int:
    """The first line of a function, its decorators among it."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def key(file: str, function: _Function) -> str:
    """A name of a function that no other has: "graphs/order.py:12"."""
    return f"{file}:{first_line(function)}"


def _mutant(file: Path, root: Path, function: _Function, old: ast.AST, new: str) -> Mutant:
    where = old.lineno, old.col_offset, old.end_lineno, old.end_col_offset  # type: ignore[attr-defined]
    before = ast.get_source_segment(file.read_text(), old) or ""
    names = str(file.relative_to(root)), function.name, is_compiled(function), first_line(function)
    return Mutant(*names, *where, " ".join(before.split()), new)


def _faults(function: _Function) -> Iterator[_Fault]:
    """What in a function's body may be replaced, and by which source."""
    stack: list[ast.AST] = [
        each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    while stack:
        node = stack.pop()
        if isinstance(
            node, (ast.Raise, ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.JoinedStr)
        ):
            continue  # a message; a function that is drawn by itself
        if isinstance(node, ast.Call) and _called(node) in _SAID:
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue  # lengths that are equal whatever is tested
        if isinstance(node, ast.AnnAssign):
            stack.extend([node.value] if node.value else [])
            continue
        yield from _faults_at(node)
        stack.extend(ast.iter_child_nodes(node))


def _faults_at(node: ast.AST) -> Iterator[_Fault]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, ast.unparse(ast.Compare(left, [_COMPARED[type(op)]()], [right]))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTED and not (
            _is_text(left) or _is_text(right)
        ):
            yield node, f"({ast.unparse(ast.BinOp(left, _COMPUTED[type(op)](), right))})"
        case ast.BoolOp(op=op, values=values):
            yield node, f"({ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield node, ast.unparse(operand)
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, str(value + 1)
        case ast.Call(func=ast.Name() | ast.Attribute() as named) if _called(node) in _CALLED:
            other = _CALLED[_called(node)]
            by_name: ast.expr = ast.Name(other) if isinstance(named, ast.Name) else ast.Attribute(named.value, other)
            yield named, ast.unparse(by_name)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
            if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
                yield test, f"(not {ast.unparse(test)})"
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Continue():
            yield node, "break"
        case ast.Break():
            yield node, "continue"


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
