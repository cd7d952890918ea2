"""The workflows of GitHub call what is here, with the versions of Python that the project says it supports."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from placelab.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
INSTALLED = {"build", "pip"}  # modules of the runner's Python that steps run or install


def jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


def commands(path: Path) -> list[str]:
    steps = [step for job in jobs(path).values() for step in job["steps"]]
    return [line for step in steps if "run" in step for line in step["run"].splitlines()]


def exists(command: str) -> bool:
    program, *arguments = command.split()
    if program == "make":
        return set(arguments) <= TARGETS
    if program == "python":
        return arguments[0] == "-m" and arguments[1] in INSTALLED
    if program == "placelab":
        return arguments[0] in VERBS
    return (ROOT / program).is_file() and os.access(ROOT / program, os.X_OK)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_jobs_whose_steps_are_actions_of_a_version_or_commands_that_exist(path: Path) -> None:
    written = yaml.safe_load(path.read_text())
    assert {"name", True, "permissions", "jobs"} <= written.keys(), "YAML reads `on` as true"
    for job in jobs(path).values():
        assert job["runs-on"].startswith("ubuntu-")
        for step in job["steps"]:
            assert len({"uses", "run"} & step.keys()) == 1
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])
    assert not [command for command in commands(path) if not exists(command)]


@pytest.mark.parametrize(
    "command", ["make tset", "python setup.py", "python -m venv", "placelab plaec", ".ci/rnu", "tox"]
)
def test_what_does_not_exist_is_noticed(command: str) -> None:
    assert not exists(command)


def test_tests_wheel_and_documentation_are_made() -> None:
    called = [command for path in WORKFLOWS for command in commands(path)]
    assert {".ci/run", "make site"} <= set(called)
    assert any("build --wheel" in command for command in called)
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_the_versions_of_python_are_those_that_the_project_names() -> None:
    [job] = [job for path in WORKFLOWS for name, job in jobs(path).items() if name == "tests"]
    tested = job["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    assert tested == [each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)]
    assert PROJECT["requires-python"] == f">={tested[0]}"
