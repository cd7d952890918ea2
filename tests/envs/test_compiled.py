"""Compiled functions are compiled once for all processes, from the sources as they are, with a line on stderr."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envs.simulation import engine
from envs.simulation.compiled import KERNELS
from graphs.foundation.files import locked

ROOT = Path(__file__).parents[2]
TOY = """
from envs.simulation.compiled import compiled, inlined
from other import more

@inlined
def twice(x):
    return 2 * x

@compiled
def called(x):
    return twice(x) + more(x)

@compiled
def added(x):
    return called(x) + 1

if __name__ == "__main__":
    print(twice(20), added(20))
"""
BEYOND = """
    import numba, numpy

    @compiled
    def beyond(buffer):
        buffer[len(buffer)] = 1.0

    if numba.config.BOUNDSCHECK:
        beyond(numpy.zeros(1))
"""
OTHER = """
from envs.simulation.compiled import compiled

@compiled
def more(x):
    return {constant} * x
"""
COMPILING = "placelab: compiling __main__, once ..."


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A script with compiled functions, which prints "40 61"."""
    return written(tmp_path)


@pytest.fixture(scope="module")
def compiled_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose functions have been compiled; where indices are checked, it has one beyond its buffer, too."""
    script = written(tmp_path_factory.mktemp("compiled"))
    script.write_text(script.read_text() + BEYOND)
    assert _ended(_started(script))[0] == "40 61"
    return script


def written(folder: Path) -> Path:
    script = folder / "toy.py"
    script.write_text(TOY)
    (folder / "other.py").write_text(OTHER.format(constant=1))
    return script


def _started(toy: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"NUMBA_BOUNDSCHECK": "0", "NUMBA_CACHE_DIR": str(toy.parent / "kept"), **variables}
    return subprocess.Popen(
        [sys.executable, str(toy)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed, to stdout and to stderr."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), err


def _kept(toy: Path) -> set[str]:
    return {file.name for file in toy.parent.glob("kept/*/*.nb?")}


def test_the_first_process_says_once_that_it_compiles_and_a_later_one_nothing_until_a_source_changes(toy: Path) -> None:
    out, err = _ended(_started(toy))
    assert out == "40 61"
    assert err.count("\n") == 1
    assert err.startswith(COMPILING)
    assert err.endswith(" s\n")
    kept = _kept(toy)
    for source in toy.parent.glob("*.py"):
        source.touch()
    assert _ended(_started(toy)) == ("40 61", "")
    assert _kept(toy) == kept
    (toy.parent / "other.py").write_text(OTHER.format(constant=3))
    out, err = _ended(_started(toy))
    assert out == "40 101", "of the changed text of another source"
    assert err.startswith(COMPILING)
    assert len(_kept(toy)) == len(kept)
    assert not _kept(toy) & kept, "what it replaces is removed"


def test_code_that_checks_indices_is_not_that_which_does_not(compiled_toy: Path) -> None:
    checked = _started(compiled_toy, NUMBA_BOUNDSCHECK="1")
    assert checked.communicate(timeout=120)[1].count(COMPILING) == 2, "though it was compiled without checks"
    assert checked.returncode == 1
    checked = _started(compiled_toy, NUMBA_BOUNDSCHECK="1")
    err = checked.communicate(timeout=120)[1]
    assert COMPILING not in err
    assert "IndexError: index is out of bounds" in err


def test_two_processes_at_once_compile_once(toy: Path) -> None:
    both = [_started(toy), _started(toy)]
    with ThreadPoolExecutor() as pool:
        (one, first), (other, second) = pool.map(_ended, both)
    assert one == other == "40 61"
    assert (first + second).count(COMPILING) == 1


def test_a_process_waits_for_one_that_compiles_and_says_so(compiled_toy: Path) -> None:
    (folder,) = compiled_toy.parent.glob("kept/*")
    for file in folder.glob("*.nb?"):
        file.unlink()
    with locked(folder / "compiled"):
        waiting = _started(compiled_toy)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "placelab: waiting while another process compiles __main__\n"
    out, err = _ended(waiting)
    assert out == "40 61"
    assert err.startswith(COMPILING)  # the other one ended before it had compiled


def test_where_nothing_can_be_written_every_process_compiles(toy: Path) -> None:
    out, err = _ended(_started(toy, NUMBA_CACHE_DIR="", NUMBA_CACHE_LOCATOR_CLASSES="UserProvidedCacheLocator"))
    assert out == "40 61"
    assert err.startswith(COMPILING)
    assert err.count("\n") == 1
    assert not _kept(toy), "the next one compiles as well"


def test_every_compiled_function_is_among_those_that_are_compiled_ahead() -> None:
    written = re.findall(r"^@compiled\ndef (\w+)", Path(engine.__file__).read_text(), re.MULTILINE)
    known = {kernel.__name__ for kernel in KERNELS if kernel.__module__ == engine.__name__}
    assert known == set(written) != set()


@pytest.mark.slow  # loads all that is compiled
def test_compile_all_compiles_every_function_once_for_all_that_they_are_given() -> None:
    code = """
import importlib, pickle
from evaluation.commands.compile_all import compile_all
from envs.simulation.bounds import lower_bound
from envs.simulation.compiled import KERNELS
from graphs.foundation.by_name import build
from graphs.problem import Problem
from placers.max_load_dp import MaxLoadDP
from tests.oracle.toys import random_graph
from tests.house.test_rooms import FILES

for name in FILES:
    if name.startswith(("envs", "placers")):
        importlib.import_module(name)
compile_all()
cluster = build("graphs.clusters", "cpu_gpu:gpus=2")
problem = pickle.loads(pickle.dumps(Problem(random_graph(12, seed=1), cluster, objective="max-load")))
lower_bound(problem)
MaxLoadDP().place(problem)
print(sorted(f"{kernel.__module__}.{kernel.__name__}" for kernel in KERNELS if len(kernel.overloads) != 1))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
