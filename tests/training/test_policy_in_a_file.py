"""A learned placer in a user's own file: trained, found again, resumed; and what is refused, and what is said."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphs.foundation import code_in_files
from graphs.foundation.code_in_files import code_allowed
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.lookup import placer_of, trainer_of
from placers.learned.policy_meta import load_meta
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from training.recipe import Recipe
from training.runs.finetune import FineTuner
from training.runs.resources import Resources
from training.runs.train import train

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = Problem(random_graph(6, seed=6), toy_cluster(2))
SPEC = "mine.py:build"
NETWORK = '''"""Units and devices are rated by what is known of each pair of them."""

import torch
from torch import nn

from placers.learned.features import PAIR_FEATURES


class PairNetwork(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.rate = nn.Sequential(nn.Linear(len(PAIR_FEATURES), hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, batch):
        """(problems, units, devices)."""
        return self.rate(batch.pairs).squeeze(-1)


def build(*, hidden: int = 16):
    return PairNetwork(hidden)
'''
ANOTHER = """
import pickle, sys
placer, problem = pickle.load(sys.stdin.buffer)
print(*placer.place(problem).plan.devices)
"""


def recipe() -> Recipe:
    return Recipe(placer=SPEC, network="linear:hidden=4", ppo=Ppo(updates=2, samples=4, problems_per_update=1))


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user, with the example as a file of theirs, which no file may name once it is trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code_in_files, "_named", set())
    shutil.copy(ROOT / "examples/linear_policy.py", "mine.py")
    return tmp_path


@pytest.fixture
def trained(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> Placer:
    """The policy after a training, which another process has done."""
    placer = train(recipe(), [PROBLEM], out=Path("run"), loggers=())
    monkeypatch.setattr(code_in_files, "_named", set())
    return placer


def test_it_is_found_again_where_the_user_allows_its_code(trained: Placer) -> None:
    meta = load_meta(Path("run"))
    assert (meta.placer, meta.file, trainer_of(SPEC)) == ("linear", SPEC, "ppo")
    with pytest.raises(InputError, match=r"it names code, 'mine.py:build', and a file that is opened runs none"):
        placer_of(Path("run"))
    with code_allowed():
        again = placer_of(Path("run"))
    assert again.place(PROBLEM).plan == trained.place(PROBLEM).plan
    assert FineTuner(trained).place(PROBLEM, budget=20).simulations <= 20  # type: ignore[arg-type]


def test_another_process_places_alike(trained: Placer) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    given = pickle.dumps((trained, PROBLEM))
    found = subprocess.run([sys.executable, "-c", ANOTHER], input=given, stdout=subprocess.PIPE, env=env, check=True)
    assert found.stdout.decode().strip() == " ".join(map(str, trained.place(PROBLEM).plan.devices))


def test_a_changed_file_does_not_resume_and_is_said(trained: Placer, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(recipe(), [PROBLEM], out=Path("run"), resume=True, loggers=()).place(PROBLEM).plan
    assert "has changed" not in capsys.readouterr().err
    Path("mine.py").write_text(Path("mine.py").read_text() + "# edited\n")
    with pytest.raises(InputError, match=r"'mine.py:build' has changed since run was started; restore the file"):
        train(recipe(), [PROBLEM], out=Path("run"), resume=True, loggers=())
    placer_of(Path("run"))
    assert "placelab: mine.py has changed since the policy in run was trained\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "source", "sentence"),
    [
        ("none.py:build", "", "none.py: no such Python file"),
        ("mine.py:build", "def build(:", "mine.py: SyntaxError"),
        ("mine.py:build", "TRAINER = 'ppo'\nbuild = print", "mine.py: no callable 'new_policy' in it"),
        ("mine.py:build:samples=3", None, "a policy has its knobs in its network; leave out 'samples=3'"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(spec: str, source: str | None, sentence: str) -> None:
    if source is not None:
        Path("mine.py").write_text(source)
    with pytest.raises(InputError, match=sentence):
        train(Recipe(placer=spec, network="linear"), [PROBLEM], out=Path("run"), loggers=())


def test_it_learns_in_one_process() -> None:
    with pytest.raises(InputError, match="learns in one process; leave out other workers"):
        train(recipe(), [PROBLEM], out=Path("run"), loggers=(), resources=Resources(workers=2))


def test_a_changed_network_does_not_resume_and_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text(NETWORK)
    of_file = Recipe(network="net.py:build", ppo=Ppo(updates=1, samples=2, problems_per_update=1))
    train(of_file, [PROBLEM], out=Path("run"), loggers=())
    placer_of(Path("run"))
    assert "has changed" not in capsys.readouterr().err
    Path("net.py").write_text(NETWORK + "# edited\n")
    with pytest.raises(InputError, match=r"'net.py:build' has changed since run was started; restore the file"):
        train(of_file, [PROBLEM], out=Path("run"), resume=True, loggers=())
    placer_of(Path("run"))
    assert capsys.readouterr().err.count("placelab: net.py has changed since the policy in run was trained\n") == 1
