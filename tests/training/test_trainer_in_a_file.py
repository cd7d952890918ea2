"""A trainer in a user's own file: the example learns, is resumed to the same end; and what is refused."""

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from envs.prepared_problem import PreparedProblem
from graphs.cluster import Device
from graphs.foundation import code_in_files
from graphs.foundation.code_in_files import code_allowed
from graphs.foundation.errors import InputError, UserCodeError
from graphs.problem import Problem
from placers.learned.lookup import learned_module, placer_of
from placers.learned.policy_meta import load_meta
from placers.learned.settings import Ppo, Reinforce
from tests.oracle.toys import random_graph, toy_cluster
from training.recipe import Recipe, load_recipe
from training.runs.finetune import FineTuner
from training.runs.train import train

ROOT = Path(__file__).resolve().parents[2]
SLOW, FAST = (Device(f"gpu:{speed:g}", "gpu", speed, 1.0, 100.0) for speed in (1.0, 8.0))
PROBLEM = Problem(random_graph(9, seed=6), dataclasses.replace(toy_cluster(2), devices=(SLOW, FAST)))
NETWORK = "graphsage_transformer:width=8,sage_layers=0,transformer_layers=0,in_order=false"


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code_in_files, "_named", set())
    for name in ("plain_reinforce.py", "plain_reinforce.toml"):
        shutil.copy(ROOT / "examples" / name, name)


def recipe(updates: int = 20, file: str = "plain_reinforce.py", **settings: object) -> Recipe:
    return Recipe(placer=f"{file}:build", network=NETWORK, trainer={"updates": updates, **settings})


def edited(old: str, new: str) -> str:
    """The example, as a file of the same names with a change."""
    source = Path("plain_reinforce.py").read_text()
    assert old in source
    Path("mine.py").write_text(source.replace(old, new))
    return "mine.py"


def test_it_learns_is_found_again_and_fine_tuned() -> None:
    known = PreparedProblem(PROBLEM)
    untrained = learned_module("plain_reinforce.py:build").new_policy(NETWORK, 0)
    trained = train(recipe(updates=40), [PROBLEM], out=Path("run"), loggers=())
    assert trained.policy is not None
    with torch.no_grad():
        chances = [each.logits(each.stack([each.view(PROBLEM)]))[0].softmax(-1) for each in (untrained, trained.policy)]
    drawn = [torch.multinomial(each, 100, True, generator=torch.Generator().manual_seed(1)).T for each in chances]
    before, after = (float(known.evaluate(each.numpy()).step_seconds.mean()) for each in drawn)
    assert after < 0.95 * before
    assert "40 updates by `PlainReinforce`; 640 simulations" in Path("run/card.md").read_text()
    assert load_recipe("run/config.toml").trainer == {"updates": 40}
    with code_allowed():
        again = placer_of(Path("run"))
    assert again.place(PROBLEM).plan == trained.place(PROBLEM).plan
    assert FineTuner(trained).place(PROBLEM, budget=20).simulations <= 20


def test_it_resumes_to_the_same_end_after_an_error_of_its_own() -> None:
    """The error is told with its line; a file that it looks for makes it, so that the trainer's own stays as it is."""
    counted = "        self.updates += 1\n"
    file = edited(counted, "        assert self.updates < 4 or Path('go').exists(), 'not yet'\n" + counted)
    Path(file).write_text(
        Path(file).read_text().replace("import msgspec", "from pathlib import Path\n\nimport msgspec")
    )
    with pytest.raises(UserCodeError, match=r"mine.py:\d+: AssertionError: not yet"):
        train(recipe(6, file), [PROBLEM], out=Path("part"), loggers=())
    Path("go").touch()
    train(recipe(6, file), [PROBLEM], out=Path("part"), resume=True, loggers=())
    train(recipe(6, file), [PROBLEM], out=Path("whole"), loggers=())
    part, whole = (Path(each, "policy.safetensors").read_bytes() for each in ("part", "whole"))
    assert part == whole
    with pytest.raises(InputError, match="was started from another recipe"):
        train(recipe(7, file), [PROBLEM], out=Path("part"), resume=True, loggers=())


def test_a_setting_is_changed_as_any_other() -> None:
    changed = load_recipe("plain_reinforce.toml", ["trainer.samples=4", "trainer.learning_rate=0.1"])
    assert changed.trainer == {"updates": 80, "samples": 4, "learning_rate": 0.1}
    with pytest.raises(InputError, match=r"\[trainer\] says nothing to placer 'gdp'; remove that section"):
        Recipe(trainer={"updates": 3})


@pytest.mark.parametrize(
    ("old", "new", "settings", "sentence"),
    [
        ("samples", "samples", {"smaples": 3}, r"unknown key of \[trainer\] 'smaples'; did you mean 'samples'"),
        ("samples", "samples", {"samples": 1}, r"trainer.samples: expected .*, got 1"),
        ('"PlainReinforce"', '"Plain"', {}, "no callable 'Plain' in it; there are: .*PlainReinforce"),
        (
            '"PlainReinforce"',
            '"PreparedProblem"',
            {},
            "TRAINER is 'PreparedProblem'; expected one of ppo, .* or the name",
        ),
        ('"PlainReinforce"', "PlainReinforce", {}, "its file has no TRAINER, one of ppo, .* in quotes"),
        ("    settings_type = PlainReinforceSettings\n", "", {}, r"\[trainer\] says nothing to placer"),
        ("        self.optimizer = ", "        optimizer = ", {}, "PlainReinforce has no `optimizer`; set it in"),
        ("def update(", "def improve(", {}, "abstract method '?update"),
    ],
)
def test_what_is_wrong_gets_one_sentence(old: str, new: str, settings: dict[str, object], sentence: str) -> None:
    file = edited(old, new)
    with pytest.raises(InputError, match=sentence):
        train(recipe(1, file, **settings), [PROBLEM], out=Path("run"), loggers=())
    assert not Path("run").exists()


def test_one_that_extends_ppo_reads_its_section() -> None:
    source = "from training.learning.ppo import PpoTrainer\n\nTRAINER = 'Mine'\n\nclass Mine(PpoTrainer):\n    pass\n"
    Path("mine.py").write_text(Path("plain_reinforce.py").read_text().replace('TRAINER = "PlainReinforce"', source))
    given = Recipe(placer="mine.py:build", network=NETWORK, ppo=Ppo(updates=1, samples=3, problems_per_update=1))
    train(given, [PROBLEM], out=Path("run"), loggers=())
    assert load_recipe("run/config.toml") == given
    assert load_meta(Path("run")).simulations == 3
    with pytest.raises(InputError, match=r"\[reinforce\] says nothing to placer 'mine.py:build'; remove"):
        train(replace(given, reinforce=Reinforce(updates=1)), [PROBLEM], out=Path("other"), loggers=())
