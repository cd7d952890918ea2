"""How the house is built: who may import whom, how long a function may be, and where an import may stand."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from graphs.foundation import by_name
from placelab.names import listed

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("graphs", "envs", "placers", "training", "evaluation", "placelab")
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
}
MOST_LINES = 60
MOST_PARAMETERS = 9
DOTTED = re.compile(r"\b(?:graphs|envs|placers|training|evaluation)(?:\.\w+)+")
PATH = re.compile(r"(?<![\w./])(?:graphs|envs|placers|training|evaluation|tests)/[\w/]+\.(?:py|toml|md)")
COMPILED = {"compiled", "inlined", "subroutine"}  # kernels take the arrays that they read and write

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """Parsed when a test asks for it: every process of a run of all tests reads this file."""
    return tuple(ast.walk(ast.parse(FILES[name].read_text())))


@cache
def imports(name: str) -> list[tuple[int, str]]:
    """Line and dotted name of everything that a module imports, at its top or inside a function."""
    found: list[tuple[int, str]] = []
    for node in nodes(name):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: imports are absolute"
            found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


@cache
def imported(name: str) -> set[str]:
    """The project's modules that a module imports anywhere: at its top, in a function, or for its types alone."""
    found = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if names <= FILES.keys() else {*names, str(node.module)}
    return (found & FILES.keys()) - {name}


def folder(name: str) -> str:
    return FILES[name].parent.relative_to(ROOT).as_posix()


def functions(name: str) -> Iterator[Function]:
    """All functions of a module that are not compiled kernels."""
    for node in nodes(name):
        if isinstance(node, Function):
            marks = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
            if not marks & COMPILED:
                yield node


def floor(name: str) -> int:
    top = name.partition(".")[0]
    return FLOORS.index(top) if top in FLOORS else -1


def test_the_floors_are_found() -> None:
    assert len(FILES) > 30
    assert {floor(name) for name in FILES} == set(range(len(FLOORS)))


def test_an_import_never_goes_up() -> None:
    assert [
        f"{name}:{line} imports {other}, which is a floor above"
        for name in sorted(FILES)
        for line, other in imports(name)
        if floor(other) > floor(name)
    ] == []


def test_a_room_of_placers_imports_no_placer_above_it() -> None:
    rooms = [name for name in sorted(FILES) if folder(name).startswith("placers/")]
    assert [
        f"{name}:{line} imports {other}; a room builds placers by name"
        for name in rooms
        for line, other in imports(name)
        if other.startswith("placers.") and (ROOT / "placers" / f"{other.split('.')[1]}.py").is_file()
    ] == []


def test_nothing_is_pickled_but_what_own_processes_are_sent() -> None:
    picklers = {"pickle", "dill", "cloudpickle"}
    users = [name for name in FILES if any(other.partition(".")[0] in picklers for _, other in imports(name))]
    assert users == ["graphs.foundation.parcels"]


def cycles() -> list[list[str]]:
    """Groups of modules that import each other: strongly connected components, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imported(name)):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(FILES):
        if name not in index:
            visit(name)
    return found


def test_no_modules_import_each_other_not_even_for_their_types() -> None:
    assert cycles() == []


def test_no_two_rooms_of_the_placers_ask_each_other() -> None:
    rooms = {
        (folder(name), folder(other))
        for name in FILES
        for other in imported(name)
        if folder(name).startswith("placers") and folder(other).startswith("placers")
    }
    assert {pair for pair in rooms if pair[0] < pair[1] and pair[::-1] in rooms} == set()


def test_training_knows_no_policy_by_name() -> None:
    """But for Placeto's network, which `training.sb3` offers to another library's PPO."""
    policies = {folder(name) for name in FILES if name.startswith("placers.learned.") and name.endswith(".placer")}
    asked = {
        (name, other)
        for name in FILES
        for other in imported(name)
        if name.startswith("training.") and name != "training.sb3" and folder(other).startswith(tuple(policies))
    }
    assert len(policies) >= 6
    assert asked == set()


def test_a_function_fits_on_a_screen() -> None:
    lines = {f"{name}.{each.name}": (each.end_lineno or 0) - each.lineno + 1 for name, each in all_functions()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_a_function_takes_few_parameters() -> None:
    counts = {f"{name}.{each.name}": parameters(each) for name, each in all_functions() if not is_build(each)}
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def all_functions() -> Iterator[tuple[str, Function]]:
    for name in sorted(FILES):
        yield from ((name, function) for function in functions(name))


def parameters(function: Function) -> int:
    spec = function.args
    return len([each for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs) if each.arg not in ("self", "cls")])


def is_build(function: Function) -> bool:
    """Whether the parameters are the knobs of an extension: each is a knob of a spec, and has a default."""
    return function.name == "build" and len(function.args.kw_defaults) == len(function.args.kwonlyargs)


def test_an_import_inside_a_function_says_why() -> None:
    assert [each for name in sorted(FILES) for each in late_without_a_reason(name)] == []


def late_without_a_reason(name: str) -> Iterator[str]:
    """The functions of a module that import something, where no comment says why."""
    lines = FILES[name].read_text().splitlines()
    imports = [node for node in nodes(name) if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset]
    for function in (node for node in nodes(name) if imports and isinstance(node, Function)):
        inside = [node for node in imports if function.lineno < node.lineno <= (function.end_lineno or 0)]
        if inside:
            said = [line for line in lines if line.startswith("# Imported late")]
            said += lines[min(node.lineno for node in inside) - 2 : max(node.end_lineno or 0 for node in inside)]
            if not any("#" in line for line in said):
                yield f"{name}.{function.name}"


def roots() -> set[str]:
    """Modules that nobody has to import: exported, found by name, run as programs, shown by documents."""
    shown = [ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml", *sorted((ROOT / "docs").glob("*.md"))]
    shown += sorted(path for part in ("how-to", "reference") for path in (ROOT / "docs" / part).glob("*.md"))
    said = [path.read_text() for path in [*shown, *(ROOT / "examples").rglob("*.py")]]
    own = [text for name in FILES for text in texts(name)]
    dotted = {word for text in said for word in DOTTED.findall(text)} | set(own)
    dotted |= {word for text in own for word in re.findall(r"-m ([\w.]+)", text)}
    programs = {name for name in FILES if name == "placelab" or name.endswith("__main__")}
    by_their_names = {name for name in FILES if name.rpartition(".")[0] in {*by_name.FOLDERS, "training.loggers"}}
    learned = {name for name in FILES if re.fullmatch(r"placers\.learned\.\w+\.placer", name)}
    exported = {module for module, _ in listed().values()}
    return programs | exported | by_their_names | learned | (dotted & FILES.keys())


def test_tests_alone_import_no_module() -> None:
    reached, new = set[str](), roots()
    while new:
        reached |= new
        new = {name for each in new for name in imported(each)} - reached
    assert sorted(name for name in FILES.keys() - reached if FILES[name].name != "__init__.py") == []


def test_one_file_starts_processes() -> None:
    users = {name for name in FILES if "import multiprocessing" in FILES[name].read_text()}
    assert users == {"graphs.foundation.items"}
    assert {
        name for name in FILES if re.search(r"^(from|import) (dask|distributed)", FILES[name].read_text(), re.M)
    } == {"graphs.foundation.dask_engine"}
    assert not [name for name in FILES if "ProcessPoolExecutor" in FILES[name].read_text()]


def test_no_text_is_evaluated() -> None:
    calls = {name: [node.func for node in nodes(name) if isinstance(node, ast.Call)] for name in FILES}
    named = {name: {call.id for call in several if isinstance(call, ast.Name)} for name, several in calls.items()}
    assert [name for name, several in named.items() if "eval" in several] == []


def test_files_that_messages_name_exist() -> None:
    named = {(name, path) for name in FILES for text in texts(name) for path in PATH.findall(text)}
    assert sorted((name, path) for name, path in named if not (ROOT / path).exists()) == []


def texts(name: str) -> Iterator[str]:
    for node in nodes(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_frozen_record_holds_no_cache() -> None:
    assert [each for name in sorted(FILES) for each in frozen_that_collect(name)] == []


def frozen_that_collect(name: str) -> Iterator[str]:
    """The frozen records of a module that have a list or a set to be filled."""
    for node in nodes(name):
        if isinstance(node, ast.ClassDef) and any("frozen=True" in ast.unparse(mark) for mark in node.decorator_list):
            for field in node.body:
                made = ast.unparse(field.value) if isinstance(field, ast.AnnAssign) and field.value else ""
                if "default_factory=list" in made or "default_factory=set" in made:
                    yield f"{name}.{node.name}"
