"""Mutants are small faults that parse, and the run of tests notices those that tests can notice."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.mutants.called import Called
from tests.mutants.mutants import Mutant, drawn
from tests.mutants.run import FOLDERS, ROOT, covering, tried

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
from source.middle import middle

def test_middle():
    assert middle([3, 1, 5, 2, 4]) == 3
"""


def project(folder: Path) -> Path:
    (folder / "source").mkdir()
    (folder / "source" / "middle.py").write_text(SOURCE)
    (folder / "test_middle.py").write_text(TEST)
    return folder


def test_all_faults_of_a_function_are_found_and_none_in_texts(tmp_path: Path) -> None:
    mutants = drawn(project(tmp_path), ("source",), 5, seed=0)
    assert {(mutant.before, mutant.after) for mutant in mutants if mutant.function == "middle"} == {
        ("not ordered", "ordered"), ("len(ordered) // 2", "(len(ordered) * 2)"), ("2", "3"),
    }  # fmt: skip
    assert len(mutants) == 5  # two in the other function


def test_mutants_of_the_project_parse_and_differ_from_it() -> None:
    for mutant in drawn(ROOT, FOLDERS, 40, seed=1):
        text = (ROOT / mutant.file).read_text()
        assert ast.dump(ast.parse(mutant.source(text))) != ast.dump(ast.parse(text)), str(mutant)


def test_the_same_seed_draws_the_same_mutants() -> None:
    assert drawn(ROOT, ("envs/orders",), 20, seed=2) == drawn(ROOT, ("envs/orders",), 20, seed=2)


def test_a_mutant_is_noticed_by_a_test_that_calls_its_function_and_leaves_no_trace(tmp_path: Path) -> None:
    project(tmp_path)
    called = Called({"test_middle.py": {"source/middle.py:2"}}, {"test_middle.py": 0.1})
    results = {str(mutant): tried(mutant, tmp_path, called) for mutant in drawn(tmp_path, ("source",), 5, seed=0)}
    noticed = {each.mutant.before for each in results.values() if each.noticed_by}
    assert noticed == {"not ordered", "len(ordered) // 2", "2"}
    assert all(each.noticed_by in ("", "test_middle.py::test_middle") for each in results.values())
    assert (tmp_path / "source" / "middle.py").read_text() == SOURCE


def test_the_quickest_tests_that_call_a_function_are_tried_first() -> None:
    mutant = Mutant("graphs/algorithms/order.py", "order", 12, 15, 0, 15, 1, "a", "b")
    called = Called(
        {
            "slow.py": {"graphs/algorithms/order.py:12"},
            "quick.py": {"graphs/algorithms/order.py:12"},
            "other.py": {"graphs/algorithms/order.py:40"},
        },
        {"slow.py": 9.0, "quick.py": 1.0, "other.py": 0.1},
    )
    assert covering(mutant, called) == ["quick.py", "slow.py"]
    of_compiled = Mutant("graphs/algorithms/order.py", "kernel", 90, 91, 0, 91, 1, "a", "b")
    assert covering(of_compiled, called) == ["other.py", "quick.py", "slow.py"]


def test_calls_are_noted_by_the_file_of_the_tests_that_make_them(tmp_path: Path) -> None:
    project(tmp_path)
    out = tmp_path / "called.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.mutants.called",
        "--called",
        str(out),
        "test_middle.py",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, env={"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert '"source/middle.py:2"' in out.read_text()
