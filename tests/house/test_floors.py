"""The house's own rules: who may import whom, what an import may cost, what never appears."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("graphs", "envs", "placers", "training", "evaluation", "placelab")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for floor in FLOORS
    for path in [*(ROOT / floor).rglob("*.py"), *ROOT.glob(f"{floor}.py")]
)


@cache
def imports(file: str) -> list[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, at its top or inside a function."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def floor(name: str) -> int:
    top = name.partition(".")[0].removesuffix(".py").partition("/")[0]
    return FLOORS.index(top) if top in FLOORS else -1


def test_the_floors_are_found() -> None:
    assert len(FILES) > 30
    assert {floor(file) for file in FILES} == set(range(len(FLOORS)))


def test_an_import_never_goes_up() -> None:
    assert [
        f"{file}:{line} imports {name}, which is a floor above"
        for file in FILES
        for line, name in imports(file)
        if floor(name) > floor(file)
    ] == []


def test_a_room_of_placers_imports_no_placer_above_it() -> None:
    rooms = [file for file in FILES if file.startswith("placers/") and file.count("/") > 1]
    assert [
        f"{file}:{line} imports {name}; a room builds placers by name"
        for file in rooms
        for line, name in imports(file)
        if name.startswith("placers.") and (ROOT / "placers" / f"{name.split('.')[1]}.py").is_file()
    ] == []


def test_nothing_is_pickled_but_what_own_processes_are_sent() -> None:
    picklers = {"pickle", "dill", "cloudpickle"}
    users = [file for file in FILES if any(name.partition(".")[0] in picklers for _, name in imports(file))]
    assert users == ["graphs/foundation/parcels.py"]


def test_a_file_holds_one_idea() -> None:
    tests = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")]
    lines = {file: len((ROOT / file).read_text().splitlines()) for file in [*FILES, *tests]}
    assert {file: count for file, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize(
    "statement", ["import graphs, envs", "import graphs.files.load, envs.simulation.simulator", "import placelab"]
)
def test_what_needs_no_torch_does_not_import_it(statement: str) -> None:
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
