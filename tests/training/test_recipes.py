"""Recipes: what they train on, what is refused before anything is captured, and changes on the command line."""

import shlex
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import placelab
from envs.rewards import Penalty, load_reward
from envs.simulation.simulator import Outcome
from evaluation.commands.command_line import run
from graphs.files.graph_source import graph_source
from graphs.files.load import load_graph
from graphs.formats.graph_file import save_graph
from graphs.foundation.errors import InputError, UserCodeError
from graphs.runtime import runtime_of
from placelab.verbs import VERBS
from placers.learned.policy_meta import load_meta
from placers.learned.settings import EpisodeRules, Ppo
from tests.oracle.toys import random_graph
from training.problems.random.settings import World
from training.recipe import FAMILIES, ProblemSet, Recipe, load_recipe
from training.runs import problem_sets as module
from training.runs.model_card import model_card
from training.runs.problem_sets import ProblemSplit, load_problems
from training.runs.seeds import Trained

NETWORK = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"
SMALL = f"""
network = "{NETWORK}"
[problems]
graphs = ["one.graph.json", "two.graph.json"]
test_graphs = ["three.graph.json"]
clusters = ["p100:devices=2"]
test_clusters = ["p100:devices=3"]
groups = [4]
[ppo]
updates = 2
samples = 4
"""
OWN = """
def slow(*, weight: float = 1.0):
    return lambda before, after, last, penalty: -weight * after.step_seconds

def cube():
    return lambda ratios: -(ratios ** 3)

def text():
    return lambda *_: "much"

def nothing():
    return 3

def broken():
    def reward(*_):
        raise RuntimeError("no idea")
    return reward
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with three graphs, a recipe and a file with rewards."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("one", "two", "three")):
        save_graph(random_graph(8 + number, seed=number), tmp_path / f"{name}.graph.json")
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "my.py").write_text(OWN)
    return tmp_path


def test_graphs_and_suites_are_trained_on_and_families_only_if_named() -> None:
    assert ProblemSet().families == FAMILIES
    assert ProblemSet(graphs=("a.graph.json",)).families == ()
    assert ProblemSet(suites=("gdp12",), clusters=()).families == ()
    assert ProblemSet(families=("rnnlm",), graphs=("a.graph.json",)).families == ("rnnlm",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("families = []", "problems: there is nothing to train on; name families, graphs or suites"),
        ("clusters = []", "problems: clusters is empty"),
        ("test_clusters = []", "problems: test_clusters is empty"),
        ("groups = []", "problems: groups is empty"),
    ],
)
def test_an_empty_set_of_problems_is_refused_when_the_recipe_is_read(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(f"[problems]\n{text}\n")
    with pytest.raises(InputError, match=sentence):
        load_recipe(str(path))


@pytest.mark.parametrize("content", [b'placer = "g\xffdp"', b"a = " + b"[" * 100_000, b"\x00"])
def test_a_recipe_that_is_no_text_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"recipe\.toml"):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"families": ("rnnlmm",)}, "unknown family 'rnnlmm'; did you mean 'rnnlm'"),
        ({"graphs": ("rnnlm:layer=2",)}, "unknown knob 'layer'; did you mean 'layers'"),
        ({"graphs": ("none.graph.json",)}, r"none\.graph\.json does not exist"),
        ({"graphs": ("none.py:model",)}, r"none\.py"),
        ({"graphs": ("one.graph.json", "one.graph.json")}, r"'one\.graph\.json' is given twice"),
        ({"suites": ("gdp13",)}, "unknown suite 'gdp13'; did you mean 'gdp12'"),
        ({"clusters": ("p100:device=2",)}, "unknown knob 'device'"),
        ({"optimizer": "adan"}, "unknown optimizer 'adan'"),
        (
            {"graphs": ("one.graph.json",), "test_graphs": ("one.graph.json",)},
            "among those to evaluate on; choose one",
        ),
        (
            {"families": ("rnnlm",), "suites": ("heldout",)},
            "'rnnlm:.*' is among the graphs to train on and among those",
        ),
    ],
)
def test_what_there_is_not_is_refused_before_anything_is_captured(
    wrong: dict[str, tuple[str, ...]], sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "load_graph", lambda _: pytest.fail("captured"))
    with pytest.raises(InputError, match=sentence):
        load_problems(msgspec.convert(wrong, ProblemSet))
    assert (folder / "one.graph.json").exists()


def test_a_wrong_test_split_is_refused_before_training(folder: Path) -> None:
    with pytest.raises(InputError, match=r"none\.graph\.json does not exist"):
        placelab.train("small.toml", out=folder / "run", set=['problems.test_graphs=["none.graph.json"]'])
    assert not (folder / "run").exists()


def test_each_graph_stands_on_each_cluster_and_suites_on_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "suite_specs", lambda _: (("vgg:vgg-11", "v100:devices=2"), ("vgg:vgg-11", "p100:devices=8"))
    )
    chosen = ProblemSet(graphs=("layered:depth=2",), suites=("any",), clusters=("p100:devices=2", "p100:devices=3"))
    given = {spec: random_graph(9, seed=i) for i, spec in enumerate(("layered:depth=2", "vgg:vgg-11"))}
    found = load_problems(chosen, capture=lambda spec: given[spec])
    assert [len(problem.cluster) for problem in found] == [2, 3, 2, 8]
    assert len({problem.graph.fingerprint for problem in found[:2]}) == 1
    with pytest.raises(InputError, match="nothing to evaluate on; give it test_graphs, or name a suite"):
        load_problems(chosen, "test")
    assert ProblemSplit.of(chosen, "test").sources == ()


def test_a_run_is_trained_and_evaluated_as_flags_say(folder: Path) -> None:
    placelab.train("small.toml", out=folder / "run", set=["ppo.updates=1"], runtime="megatron", order="fifo")
    assert load_recipe("run/config.toml").problems.runtimes == (runtime_of("megatron:order=fifo"),)
    assert "--set problems.runtime=megatron:order=fifo" in (folder / "run" / "command.txt").read_text()
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "megatron:order=fifo"),
        ({"host": "none"}, "megatron:order=fifo,host=none"),
        ({"runtime": "run"}, "run"),
    ]
    for asked, runtime in cases:
        found = placelab.evaluate(folder / "run", placers=["heft"], seeds=1, budget=1, **asked)
        assert {record.conditions.runtime for record in found.records} == {runtime}


def test_models_are_trained_on_in_a_precision() -> None:
    model = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
    chosen = ProblemSet(graphs=(model,), clusters=("p100:devices=2",), groups=(4,), precision="bf16")
    [problem] = load_problems(chosen)
    assert problem.graph.fingerprint == load_graph(graph_source(model).in_precision("bf16"), groups=4).fingerprint
    assert problem.graph.captured_in == "bf16"
    with pytest.raises(InputError, match="unknown precision 'bf61'; did you mean 'bf16'"):
        ProblemSplit.of(ProblemSet(graphs=(model,), precision="bf61"), "train")
    with pytest.raises(InputError, match="precision is that of models, and there are random problems alone"):
        ProblemSet(world=World(problems=2), precision="bf16")


def test_a_run_on_graph_files_is_evaluated_on_its_own_test_graphs(folder: Path) -> None:
    placer = placelab.train("small.toml", out=folder / "run", set=["ppo.updates=1"])
    assert not isinstance(placer, Trained)
    assert load_meta(folder / "run").updates == 1
    assert "ppo.updates=1" in (folder / "run" / "command.txt").read_text()
    assert load_recipe("run/config.toml") == load_recipe("small.toml", "ppo.updates=1")
    found = placelab.evaluate(folder / "run", placers=["heft"], seeds=1, budget=2)
    assert [name.rpartition("@")[2] for name in found.problems] == ["p100:devices=3"]
    card = model_card(load_meta(folder / "run"), load_recipe("run/config.toml"), folder)
    assert "- Trained on: `one.graph.json`, `two.graph.json`, tied into" in card
    assert "- To be evaluated on: `three.graph.json`, on p100:devices=3;" in card


def test_seeds_are_trained_one_after_the_other_and_each_resumes(folder: Path) -> None:
    done = placelab.train("small.toml", out=folder / "run", seed=3, seeds=2)
    assert isinstance(done, Trained)
    folders = [folder / "run-seed3", folder / "run-seed4"]
    assert done.to_json() == [f"gdp:checkpoint={path}" for path in folders]
    assert [load_meta(path).seed for path in folders] == [3, 4]
    assert "--seed 4" in (folders[1] / "command.txt").read_text()
    with pytest.raises(InputError, match="run-seed3 holds a run already"):
        placelab.train("small.toml", out=folder / "run", seed=2, seeds=2)
    assert not (folder / "run-seed2").exists()
    again = placelab.train("small.toml", out=folder / "run", seed=3, seeds=3, resume=True)
    assert isinstance(again, Trained)
    assert len(again.placers) == 3
    with pytest.raises(InputError, match="seeds is 0; expected a whole number >= 1"):
        placelab.train("small.toml", seeds=0)


def test_a_key_may_have_another_value() -> None:
    assert load_recipe("gdp", "problems.clusters=[p100x2, v100:devices=4]").problems.clusters == (
        "p100x2",
        "v100:devices=4",
    )
    changes = ["ppo.updates=200", "problems.groups=[16]", "ppo.reward=log", "problems.clusters=['p100x2']"]
    recipe = load_recipe("gdp", changes)
    assert (recipe.ppo.updates, recipe.problems.groups, recipe.ppo.reward) == (200, (16,), "log")
    assert recipe.problems.clusters == ("p100x2",)
    assert recipe.problems.families == load_recipe("gdp").problems.families
    assert load_recipe("gdp", "network=graphsage_transformer:width=32").network == "graphsage_transformer:width=32"
    assert load_recipe("placeto", "rules.memory_gib=8").rules.memory_gib == 8.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("ppo.update=3", "unknown key of a recipe 'ppo.update'; did you mean 'ppo.updates'"),
        ("ppo=3", "unknown key of a recipe 'ppo'"),
        ("updates=3", "unknown key of a recipe 'updates'"),
        ("ppo.updates.x=3", "unknown key of a recipe"),
        ("ppo.updates=many", "ppo.updates=many: expected a whole number, got a text"),
        ("ppo.updates=0", "ppo.updates=0: expected a whole number >= 1"),
        ("ppo.clip=2", "ppo.clip=2: expected a number <= 1.0"),
        ("problems.groups=16", "problems.groups=16: expected a list, got a whole number"),
        ("problems.families=[]", "there is nothing to train on"),
        ("ppo.reward=sqr", "unknown reward 'sqr'; did you mean 'sqrt'"),
        ("ppo.updates", "expected KEY=VALUE to change a recipe"),
        ("=3", "expected KEY=VALUE to change a recipe"),
        ("reinforce.updates=3", r"reinforce.updates=3: \[reinforce\] says nothing to placer 'gdp'"),
    ],
)
def test_a_change_is_checked_as_the_file_is(change: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_recipe("gdp", [change])


def test_rewards_of_ones_own(folder: Path) -> None:
    outcome = Outcome(2.0, np.zeros(2), True)
    assert load_reward("my.py:slow:weight=3")(outcome, outcome, False, Penalty(1.0)) == -6.0
    with pytest.raises(InputError, match=r"expected a function .* got int"):
        load_reward("my.py:nothing")
    with pytest.raises(InputError, match=r"reward 'my.py:text' paid 'much'; expected a finite number"):
        load_reward("my.py:text")(outcome, outcome, True, Penalty(1.0))
    with pytest.raises(UserCodeError, match=r"my.py:\d+: RuntimeError: no idea"):
        load_reward("my.py:broken")(outcome, outcome, True, Penalty(1.0))
    own = placelab.train("small.toml", out=folder / "own", set=["ppo.reward=my.py:cube"])
    assert not isinstance(own, Trained)
    assert own.name == f"gdp:checkpoint={folder / 'own'}"
    for name, sentence in (("text", "expected 4 finite numbers, one for each plan"), ("nothing", "got int")):
        with pytest.raises(InputError, match=sentence):
            placelab.train("small.toml", out=folder / name, set=[f"ppo.reward=my.py:{name}"])


def test_placeto_learns_by_a_reward_of_ones_own(folder: Path) -> None:
    changes = ["reinforce.updates=1", "rules.reward=my.py:slow", 'problems.graphs=["one.graph.json"]']
    changes += ["problems.families=[]", 'problems.test_graphs=["two.graph.json"]', "problems.groups=[4]"]
    placer = placelab.train("placeto", out=folder / "run", set=changes)
    assert not isinstance(placer, Trained)
    assert load_recipe("run/config.toml").rules.reward == "my.py:slow"


def test_the_command_line_takes_several_changes_and_a_list_as_a_value(folder: Path) -> None:
    words = ["train", "small.toml", "--out", "run", "--set", "ppo.updates=1", "--set", "problems.groups=[3,4]"]
    with pytest.raises(SystemExit) as done:
        run(VERBS, "", words)
    assert done.value.code == 0
    recipe = load_recipe("run/config.toml")
    assert (recipe.ppo.updates, recipe.problems.groups) == (1, (3, 4))
    again = (folder / "run" / "command.txt").read_text()
    assert again == "placelab " + shlex.join([*words[:2], *words[4:], *words[2:4], "--seed", "0"]) + "\n"


def test_unknown_rewards_are_named() -> None:
    with pytest.raises(InputError, match="unknown reward 'improvment'; did you mean 'improvement'"):
        EpisodeRules(reward="improvment")
    with pytest.raises(InputError, match="unknown reward 'sqr'"):
        Recipe(ppo=Ppo(reward="sqr"))
