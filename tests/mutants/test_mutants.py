"""Mutants are small faults that parse, and the run of tests notices those that tests can notice."""

import ast
from pathlib import Path

import pytest

from tests.mutants.called import Called
from tests.mutants.imports import PROJECT
from tests.mutants.mutants import Mutant, drawn
from tests.mutants.run import covering, learned, tried

SOURCE = '''
def middle(values):
    """Of at least 1 value."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError(f"{len(values) + 1} is too few")
    return dict(zip(range(len(ordered)), ordered, strict=True))[len(ordered) // 2]


def untested(value):
    return value + 1
'''
TEST = """
from graphs.middle import middle

def test_middle():
    assert middle([3, 1, 5, 2, 4]) == 3
"""


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the plug-ins of all installed packages takes most of the time of a process with one small test."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")


def project(folder: Path) -> Path:
    (folder / "graphs").mkdir()
    (folder / "graphs" / "__init__.py").touch()
    (folder / "graphs" / "middle.py").write_text(SOURCE)
    (folder / "test_middle.py").write_text(TEST)
    return folder


def test_all_faults_of_a_function_are_found_and_none_in_texts(tmp_path: Path) -> None:
    mutants = drawn(project(tmp_path), ("graphs",), 5, seed=0)
    assert {(mutant.before, mutant.after) for mutant in mutants if mutant.function == "middle"} == {
        ("not ordered", "ordered"), ("len(ordered) // 2", "(len(ordered) * 2)"), ("2", "3"),
    }  # fmt: skip
    assert len(mutants) == 5  # two in the other function


def test_mutants_of_the_project_parse_and_differ_from_it() -> None:
    for mutant in drawn(PROJECT, ("envs/simulation", "placers/solvers"), 12, seed=1):
        text = (PROJECT / mutant.file).read_text()
        assert ast.dump(ast.parse(mutant.source(text))) != ast.dump(ast.parse(text)), str(mutant)


def test_the_same_seed_draws_the_same_mutants() -> None:
    assert drawn(PROJECT, ("envs/orders",), 20, seed=2) == drawn(PROJECT, ("envs/orders",), 20, seed=2)


def test_a_mutant_is_noticed_by_a_test_that_calls_its_function(tmp_path: Path) -> None:
    known = Called({"test_middle.py::test_middle": {"graphs/middle.py:2"}}, {"test_middle.py::test_middle": 0.1})
    project(tmp_path)
    results = [tried(mutant, known, tmp_path, 10.0) for mutant in drawn(tmp_path, ("graphs",), 5, seed=0)]
    assert {each.mutant.before for each in results if each.noticed_by} == {"not ordered", "len(ordered) // 2", "2"}
    assert all(each.noticed_by in ("", "test_middle.py::test_middle") for each in results)


def test_the_quickest_tests_that_call_a_function_are_tried_first() -> None:
    mutant = Mutant("graphs/order.py", "order", False, 12, 15, 0, 15, 1, "a", "b")
    known = Called(
        {
            "slow.py::a": {"graphs/order.py:12"},
            "quick.py::b": {"graphs/order.py:12"},
            "other.py::c": {"graphs/order.py:40"},
        },
        {"slow.py::a": 9.0, "quick.py::b": 1.0, "other.py::c": 0.1},
    )
    assert covering(mutant, known, 10.0) == ["quick.py::b", "slow.py::a"]
    assert covering(mutant, known, 0.5) == ["quick.py::b"]
    of_compiled = Mutant("graphs/order.py", "kernel", True, 90, 91, 0, 91, 1, "a", "b")
    assert covering(of_compiled, known, 20.0) == ["other.py::c", "quick.py::b", "slow.py::a"]


TESTS = """
import subprocess
import sys

import pytest

from graphs.middle import middle, untested


@pytest.fixture(scope="module")
def shared():
    return middle([1])


def test_of_fixture(shared):
    assert shared == 1


def test_of_call(shared):
    assert untested(shared) == 2


def test_that_fails():
    assert middle([2]) == 3


def test_of_process():
    subprocess.run([sys.executable, "-c", "from graphs.middle import untested; untested(1)"], check=True)
"""


def test_calls_are_noted_by_the_tests_that_make_them(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "tests").mkdir()
    (folder / "test_middle.py").rename(folder / "tests" / "test_middle.py")
    (folder / "tests" / "test_all.py").write_text(TESTS)
    known = learned(tmp_path / "calls", folder)
    middle, untested = "graphs/middle.py:2", "graphs/middle.py:10"
    assert known.functions == {
        "tests/test_middle.py::test_middle": {middle},
        "tests/test_all.py::test_of_fixture": {middle},
        "tests/test_all.py::test_of_call": {middle, untested},
        "tests/test_all.py::test_of_process": {middle, untested},  # it might use the fixture
    }
    assert known.seconds.keys() == known.functions.keys()
