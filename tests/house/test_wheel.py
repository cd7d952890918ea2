"""The wheel works by itself: in an environment of its own, in another folder, without a compiler."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.front_door.pages import blocks

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKED = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
MODEL = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
CODE = """
import sys, placelab
placed = placelab.simulate("small.graph.json", "small.plan.json", cluster="p100x2")
print(placelab.__file__, placed.timeline.step_seconds, *sys.path, sep="\\n")
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def tracked() -> list[str]:
    """What git knows of: other tests put files into the tree for a moment."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout: git says which files belong to the project")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(command, cwd=source, capture_output=True, text=True, check=True)
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def run(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A function that runs a program of a fresh environment that has the wheel, in a folder of its own.

    The packages that placelab needs are those of the environment of the tests, without what that says of placelab: a
    line in a .pth file puts its folder last on the path, and no other .pth file of that folder is read.
    """
    environment, folder = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    ask = [str(programs / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    changed = {"PATH": str(programs), "CC": "false", "CXX": "false", "COLUMNS": "100"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / program), *arguments]
        return subprocess.run(command, cwd=folder, env=kept | changed, capture_output=True, text=True, check=True)

    return run


def test_all_files_are_in_it_and_no_others(wheel: Path) -> None:
    left_out = tuple(name.removeprefix("/") for name in PACKED["exclude"])
    packages = tuple(PACKED["only-include"])
    expected = {name for name in tracked() if name.startswith(packages) and not name.startswith(left_out)}
    assert {Path(name).suffix for name in expected} >= {".py", ".toml", ".j2", ".safetensors"}
    assert {f"{package}/py.typed" for package in packages} <= expected
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_command_says_its_version_and_what_there_is(run: Run) -> None:
    assert run("placelab", "--version").stdout.strip() == PYPROJECT["project"]["version"]
    listed = json.loads(run("placelab", "list", "--json").stdout)
    assert {"annealing", "planner"} <= {placer["name"] for placer in listed["placers"]}
    assert {"sequential", "placeto"} <= {recipe["name"] for recipe in listed["recipes"]}


@pytest.mark.slow
def test_it_captures_and_places_in_another_folder_without_a_compiler(run: Run) -> None:
    run("placelab", "capture", MODEL, "--out", "small.graph.json")
    run("placelab", "place", "small.graph.json", "--placer", "round_robin", "--out", "small.plan.json")
    home, seconds, *path = run("python", "-c", CODE).stdout.splitlines()
    assert "site-packages" in home
    assert float(seconds) > 0
    assert not [entry for entry in path if entry and Path(entry).resolve() in (ROOT, *ROOT.parents)]


@pytest.mark.slow  # checks all that placelab imports
def test_a_users_type_checker_knows_the_names(run: Run, tmp_path: Path) -> None:
    [page] = [block for block in blocks(ROOT / "docs/reference/python.md", "python") if "research.py" in block]
    (tmp_path / "research.py").write_text(f"{page}\nreveal_type(placelab.place(graph).timeline.step_seconds)\n")
    python = run("python", "-c", "import sys; print(sys.executable)").stdout.strip()
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "research.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "float"' in done.stdout.replace("builtins.", "")


@pytest.mark.slow  # compiles most of what can be compiled
def test_the_released_policy_a_search_and_a_chart_work_as_well(run: Run) -> None:
    run("placelab", "place", MODEL, "--cluster", "p100x2", "--budget", "20", "--out", "searched.plan.json")
    run("placelab", "simulate", MODEL, "searched.plan.json", "--cluster", "p100x2", "--gantt", "step.html")
