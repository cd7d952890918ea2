"""The house's own rules: who may import whom, what an import may cost, what never appears."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("graphs", "envs", "placers", "training", "evaluation", "placelab")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for floor in FLOORS
    for path in [*(ROOT / floor).rglob("*.py"), *ROOT.glob(f"{floor}.py")]
)


def imports(file: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def floor(name: str) -> int:
    top = name.partition(".")[0].removesuffix(".py").partition("/")[0]
    return FLOORS.index(top) if top in FLOORS else -1


def test_the_floors_are_found() -> None:
    assert len(FILES) > 30
    assert {floor(file) for file in FILES} == set(range(len(FLOORS)))


@pytest.mark.parametrize("file", FILES)
def test_an_import_never_goes_up(file: str) -> None:
    for line, name in imports(file):
        assert floor(name) <= floor(file), f"{file}:{line} imports {name}, which is a floor above"


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("placers/") and file.count("/") > 1])
def test_a_room_of_placers_imports_no_placer_above_it(file: str) -> None:
    for line, name in imports(file):
        above = name.startswith("placers.") and (ROOT / "placers" / f"{name.split('.')[1]}.py").is_file()
        assert not above, f"{file}:{line} imports {name}; a room builds placers by name"


@pytest.mark.parametrize("file", [file for file in FILES if str(file) != "graphs/foundation/parcels.py"])
def test_nothing_is_pickled_but_what_own_processes_are_sent(file: str) -> None:
    assert not [name for _, name in imports(file) if name.partition(".")[0] in {"pickle", "dill", "cloudpickle"}]


@pytest.mark.parametrize("file", FILES)
def test_a_file_holds_one_idea(file: str) -> None:
    assert len((ROOT / file).read_text().splitlines()) <= 400, f"{file} is too long to hold one idea"


@pytest.mark.parametrize(
    "statement", ["import graphs, envs", "import graphs.load, envs.simulation.simulator", "import placelab"]
)
def test_what_needs_no_torch_does_not_import_it(statement: str) -> None:
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
