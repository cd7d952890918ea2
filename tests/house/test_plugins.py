"""What other installed packages bring changes nothing that is published, and breaks nothing when it is broken."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from envs.plans.plan import Plan
from evaluation.commands.listing import KINDS, Listing
from evaluation.commands.load_placer import classical_placers
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster
from graphs.files.splits import split
from graphs.files.suites import SUITES
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.plugins import installed as installed_points
from graphs.problem import Problem
from placers.learned.lookup import placer_of
from placers.learned.policy_meta import load_meta
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from training.recipe import Recipe
from training.runs.train import train

Install = Callable[[str, str, str], None]

PROBLEM = Problem(random_graph(5, 1), toy_cluster(2))
FAMILY = '''"""A family of one test graph."""

TRAIN = ("layers=1",)
TEST = ("layers=2",)


def build(*, layers: int = 1):
    """Not even a module."""
    return layers
'''
PLACER = '''"""All on the first device."""

from dataclasses import dataclass

from envs.plans.plan import Plan

BY_REQUEST = True


@dataclass
class First:
    name: str = "first"

    def place(self, problem, *, seed=0, budget=1):
        return Plan.of([0] * len(problem.graph))


def build(*, count: int = 1):
    return First()


def nothing():
    return None


value = 5
'''


LEARNED = '''"""GDP by another name."""

from functools import partial

from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer

TRAINER = "ppo"


class Mine(OneShotPolicy):
    kind = "mine"


new_policy = Mine.new
build = partial(LearnedPlacer.with_network, Mine, network="graphsage_transformer")
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of a name, with one entry point and one module of the package's name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(package: str, point: str, source: str) -> None:
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(point)
        (tmp_path / f"{package}.py").write_text(source)
        packages.append(package)
        installed_points.cache_clear()

    packages: list[str] = []
    yield installed
    installed_points.cache_clear()
    for package in packages:
        sys.modules.pop(package, None)


def everything() -> tuple[object, ...]:
    """What is published."""
    return *(suite() for suite in SUITES.values()), classical_placers(), [by_name.built_in(f) for f in by_name.FOLDERS]


def text(listing: Listing) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(listing)
    return " ".join(captured.get().split())


def test_an_installed_family_joins_no_suite_and_is_listed(install: Install) -> None:
    before = everything()
    install("onetest", "[placelab.families]\nonetest = onetest\n", FAMILY)
    install("moreplacers", "[placelab.placers]\nfirst = moreplacers\n", PLACER)
    assert "onetest" in by_name.names("graphs.families")
    assert everything() == before
    entry = Listing.of(["families"]).to_json()
    assert isinstance(entry, list)
    assert entry[[each["name"] for each in entry].index("onetest")] == {
        "name": "onetest", "about": "A family of one test graph.", "package": "onetest", "configurations": [],
        "splits": {"train": ["layers=1"], "test": ["layers=2"]},
    }  # fmt: skip
    assert split(["onetest"], "test") == ["onetest:layers=2"]
    graph_source("onetest:layers=3")
    with pytest.raises(InputError, match="expected layers to be at least 1, got 0"):
        graph_source("onetest:layers=0")
    with pytest.raises(InputError, match=r"'onetest': expected \(module, example inputs\), got int"):
        by_name.build("graphs.families", "onetest")


@pytest.mark.parametrize("value", ["moreplacers", "moreplacers:build", "moreplacers:First"])
def test_a_plug_in_is_a_module_or_an_attribute_of_one(install: Install, value: str) -> None:
    install("moreplacers", f"[placelab.placers]\nfirst = {value}\n", PLACER)
    assert SimulatedPlan.by(by_name.build("placers", "first"), PROBLEM).plan == Plan.of([0] * len(PROBLEM.graph))
    assert by_name.constants("placers", "first")["BY_REQUEST"] is True


@pytest.mark.parametrize(
    ("value", "source", "reason"),
    [
        ("broken", "import not_installed_anywhere", "importing broken fails with ModuleNotFoundError: No module named"),
        ("broken", "import sys; sys.exit(7)", "importing broken fails with SystemExit: 7"),
        ("broken", "def build(:", "importing broken fails with SyntaxError"),
        ("broken", "VALUE = 1", "broken has no function build"),
        ("broken:VALUE", "VALUE = 1", "broken:VALUE has no function build"),
        ("broken:absent", "VALUE = 1", "importing broken:absent fails with AttributeError"),
        ("not a module", "VALUE = 1", "importing not a module fails"),
    ],
)
def test_a_broken_plug_in_is_noted_and_refused_and_all_else_works(
    install: Install, value: str, source: str, reason: str
) -> None:
    install("broken", f"[placelab.clusters]\nbroken = {value}\n", source)
    entries = Listing.of(["clusters"]).entries["clusters"]
    [entry] = [entry for entry in entries if entry["name"] == "broken"]
    assert entry["package"] == "broken"
    assert reason in str(entry["note"])
    assert "broken" in text(Listing.of(list(KINDS)))
    assert len(load_cluster("p100x4")) == 4
    for what in ("broken", "broken:devices=4", "brokenx4"):
        with pytest.raises(InputError, match="cluster 'broken' of the package broken cannot be used: ") as caught:
            load_cluster(what)
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_plug_in_that_returns_something_else_is_refused(install: Install) -> None:
    install("moreplacers", "[placelab.placers]\nfirst = moreplacers:nothing\n", PLACER)
    with pytest.raises(InputError, match="'first': expected a placer, with a method `place`, got NoneType"):
        by_name.build("placers", "first")


def test_a_built_in_wins_over_a_plug_in_of_its_name_and_list_says_so(install: Install) -> None:
    install("moreplacers", "[placelab.placers]\nheft = moreplacers\n", PLACER)
    assert by_name.build("placers", "heft").name == "heft"
    [entry] = [entry for entry in Listing.of(["placers"]).entries["placers"] if entry["name"] == "heft"]
    assert entry["note"] == "one of this name of the package moreplacers is not used: the built-in wins"
    assert str(entry["note"]) in text(Listing.of(["placers"]))


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("moreplacers", "[placelab.placers]\nfirst = moreplacers\n", PLACER)
    install("otherplacers", "[placelab.placers]\nfirst = otherplacers\n", PLACER)
    with pytest.raises(InputError, match="'first' of the package moreplacers and otherplacers cannot be used: several"):
        by_name.build("placers", "first")


def test_a_family_without_a_split_is_refused_where_one_is_needed(install: Install) -> None:
    install("onetest", "[placelab.families]\nonetest = onetest\n", FAMILY.replace("TEST", "EXAM"))
    with pytest.raises(InputError, match="model family 'onetest' has no list TEST of the knobs of its graphs"):
        split(["onetest"], "test")
    assert Listing.of(["families"]).to_json()


@pytest.mark.parametrize(("columns", "width"), [("", 80), ("60", 60), ("120", 120)])
def test_a_list_fits_the_width(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    console = Console(width=140)
    with console.capture() as captured:
        console.print(Listing.of(list(KINDS)))
    lengths = {len(line.rstrip()) for line in captured.get().splitlines()}
    assert width - 10 < max(lengths) <= width


@pytest.mark.parametrize("value", ["learnedmine", "learnedmine:build"])
def test_a_learned_placer_of_a_package_is_trained_and_found_again(value: str, install: Install, tmp_path: Path) -> None:
    install("learnedmine", f"[placelab.placers]\nmine = {value}\n", LEARNED)
    network = "graphsage_transformer:width=8,sage_layers=1,transformer_layers=1,heads=2"
    recipe = Recipe(placer="mine", network=network, ppo=Ppo(updates=1, samples=2, problems_per_update=1))
    trained = train(recipe, [PROBLEM], out=tmp_path / "run", loggers=())
    assert load_meta(tmp_path / "run").placer == "mine"
    for again in (placer_of(tmp_path / "run"), placer_of(f"mine:checkpoint={tmp_path / 'run'}")):
        assert again.place(PROBLEM).plan == trained.place(PROBLEM).plan


def test_a_placer_in_a_file_that_does_not_learn_is_told_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLACER)
    with pytest.raises(InputError, match=r"cannot be trained: its file has no TRAINER, one of ppo, .*extend.md"):
        train(Recipe(placer=f"{tmp_path / 'mine.py'}:build"), [PROBLEM], out=tmp_path / "run", loggers=())
