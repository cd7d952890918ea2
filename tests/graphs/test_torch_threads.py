"""Torch computes with one thread wherever placelab computes with torch, unless the user says otherwise."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import pytest
import torch

from evaluation.commands.load_placer import load_placer
from graphs.foundation import torch_threads
from graphs.foundation.errors import InputError
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from training.learning.ppo import PpoTrainer
from training.learning.reinforce import ReinforceTrainer
from training.runs.finetune import FineTuner

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2"
PROBLEM = Problem(random_graph(6, seed=1), toy_cluster(2))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which nobody has decided yet, and torch takes three threads by itself."""
    before = torch.get_num_threads()
    monkeypatch.delenv(torch_threads.VARIABLE, raising=False)
    monkeypatch.setattr(torch_threads, "OF_OPENMP", "")
    monkeypatch.setattr(torch_threads._done, "limited", False, raising=False)
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def reset_later() -> None:
    env = gym.make("envs:GDP-v0", problems=[PROBLEM])
    torch.set_num_threads(3)
    torch_threads._done.limited = False  # as if torch had been imported only now
    env.reset(seed=0)


WAYS: dict[str, Callable[[], object]] = {
    "environment": lambda: gym.make("envs:Placeto-v0", problems=[PROBLEM]),
    "one-shot environment": lambda: gym.make("envs:GDP-v0", problems=[PROBLEM]),
    "vector environment": lambda: gym.make_vec("envs:Placeto-v0", num_envs=2, problems=[PROBLEM]),
    "torch imported after the environment": reset_later,
    "released policy": lambda: load_placer("default"),
    "placing": lambda: LearnedPlacer(OneShotPolicy.new(NETWORK, 0), "gdp").place(PROBLEM),
    "Placeto's placing": lambda: LearnedPlacer(PlacetoPolicy.new("placeto:rounds=1", 0), "placeto").place(PROBLEM),
    "PPO": lambda: PpoTrainer(OneShotPolicy.new(NETWORK, 0), [PROBLEM], Ppo(), seed=0),
    "REINFORCE": lambda: ReinforceTrainer(PlacetoPolicy.new("placeto:rounds=1", 0), [PROBLEM]),
    "fine-tuning": lambda: FineTuner(LearnedPlacer(OneShotPolicy.new(NETWORK, 0), "gdp")).tune(PROBLEM, simulations=40),
}


@pytest.mark.parametrize("way", WAYS)
def test_there_is_one_thread_after(way: str) -> None:
    WAYS[way]()
    assert torch.get_num_threads() == 1


def test_the_user_decides_by_a_variable_before_or_by_torch_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(torch_threads.VARIABLE, "2")
    limit_torch_threads()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(3)
    limit_torch_threads()
    assert torch.get_num_threads() == 3


def test_openmps_variable_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_threads, "OF_OPENMP", "3")
    limit_torch_threads()
    assert torch.get_num_threads() == 3


def test_what_dask_makes_of_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets OMP_NUM_THREADS where it starts processes, after torch has read it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    limit_torch_threads()
    assert torch.get_num_threads() == 1


def test_each_thread_is_limited() -> None:
    """Torch keeps the number of each thread: one that was limited elsewhere is not limited here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(limit_torch_threads).result()
    assert torch.get_num_threads() == 3
    limit_torch_threads()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_what_is_no_number_of_threads_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(torch_threads.VARIABLE, text)
    with pytest.raises(InputError, match=f"PLACELAB_THREADS is '{text}'; expected a number of threads"):
        limit_torch_threads()


def test_it_takes_effect_as_soon_as_torch_is_there_and_does_not_import_it() -> None:
    code = (
        "import sys, envs; from graphs.foundation.torch_threads import limit_torch_threads as limit; limit();"
        "assert 'torch' not in sys.modules; import torch; torch.set_num_threads(2); limit();"
        "print(torch.get_num_threads())"
    )
    kept = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=kept, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
