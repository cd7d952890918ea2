"""The example of a placer in a package: installed as any other, found by its entry point, and held to the contract."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import placelab
from graphs.foundation import by_name
from graphs.foundation.plugins import installed
from graphs.problem import Problem
from placers.contract.placer import Placer
from tests.contracts.test_placers import PROBLEMS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples/own_placer"
MODEL = "rnnlm:layers=2,steps=3,hidden=8,batch=2,vocabulary=16"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of installed packages with this one in it, on the path."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(PACKAGE)], check=True)
    sys.path.insert(0, str(folder))
    installed.cache_clear()
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("one_by_one", None)
    installed.cache_clear()


@pytest.fixture(scope="module")
def placer(site: Path) -> Placer:
    built: Placer = by_name.build("placers", "one_by_one:rounds=3")
    assert Path(sys.modules["one_by_one"].__file__ or "").parent == site
    return built


def test_it_is_listed_with_its_package(site: Path) -> None:
    listed = placelab.list_names("placers").to_json()
    assert isinstance(listed, list)
    [entry] = [each for each in listed if each["name"] == "one_by_one"]
    assert entry["package"] == "placelab-one-by-one"
    assert str(entry["about"]).startswith("One unit after another is moved")


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("budget", [0, 1, 9, 200])
def test_it_keeps_to_the_contract(placer: Placer, problem: Problem, budget: int) -> None:
    result = placer.place(problem, seed=3, budget=budget)
    result.plan.check(problem)
    assert result.placer == placer.name == "one_by_one:rounds=3"
    assert result.simulations <= budget
    assert placer.place(problem, seed=3, budget=budget).plan == result.plan


def test_it_is_compared_with_others_and_never_behind_one_device(site: Path) -> None:
    compared = placelab.compare([MODEL], clusters=["p100x2"], placers=["one_by_one", "single_device"], budget=300)
    seconds = {record.placer: record.step_seconds for record in compared.records}
    assert seconds["one_by_one"] <= seconds["single_device"]


def test_its_file_is_a_placer_without_being_installed() -> None:
    placed = placelab.place(MODEL, cluster="p100x2", placer=f"{PACKAGE / 'one_by_one.py'}:build:rounds=1", budget=40)
    assert 0 < placed.result.simulations <= 40
