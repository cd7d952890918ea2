"""Sweeps: what is tried, how it is judged, and that a sweep which was killed ends as if it had not been."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import placelab
from graphs.foundation.errors import InputError
from tests.forked import ended
from training.learning.ppo import PpoMetrics, PpoTrainer
from training.runs.sweep import JOURNAL, Over, Sweep, sweep, worth

RECIPE = """
placer = "sequential"
network = "sequential:width=8,heads=2,hidden=8,sage_layers=1"

[problems]
graphs = ["rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"]
clusters = ["p100:devices=2"]
groups = [8]

[ppo]
updates = 3
samples = 4
problems_per_update = 1
epochs = 1
"""
OVER = ["ppo.learning_rate=1e-4..1e-2:log", "ppo.samples=2..6", "ppo.reward=log|sqrt"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recipe") / "small.toml"
    path.write_text(RECIPE)
    return str(path)


def swept(recipe: str, out: Path, trials: int = 3) -> Sweep:
    return sweep(recipe, [Over.parse(each) for each in OVER], trials=trials, out=out, seed=4)


@pytest.fixture(scope="module")
def whole(recipe: str, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Of three trials that nothing interrupts."""
    return swept(recipe, tmp_path_factory.mktemp("whole") / "sweep")


def comparable(found: Sweep) -> list[tuple[int, dict[str, object], float]]:
    return [(each.number, each.changes, each.value) for each in found.trials]


def test_a_sweep_tries_values_in_their_ranges_and_keeps_each_run(whole: Sweep) -> None:
    assert [each.number for each in whole.trials] == [0, 1, 2]
    for trial in whole.trials:
        assert 1e-4 <= float(str(trial.changes["ppo.learning_rate"])) <= 1e-2
        assert trial.changes["ppo.samples"] in range(2, 7)
        assert trial.changes["ppo.reward"] in ("log", "sqrt")
        lines = [json.loads(line) for line in (trial.folder / "metrics.jsonl").read_text().splitlines()]
        assert trial.value == worth(trial.folder) == lines[-1]["step_over_bound"]
        assert f"samples = {trial.changes['ppo.samples']}" in (trial.folder / "config.toml").read_text()
        assert (trial.folder / "card.md").is_file()
    best = min(whole.trials, key=lambda each: each.value)
    assert whole.best == best
    assert f"--set ppo.samples={best.changes['ppo.samples']}" in whole.command_of(best)


def test_the_same_command_goes_on_with_more_trials_and_another_sweep_is_refused(
    whole: Sweep, recipe: str, tmp_path: Path
) -> None:
    swept(recipe, tmp_path / "part", trials=1)
    assert comparable(swept(recipe, tmp_path / "part")) == comparable(whole)
    before = (tmp_path / "part" / JOURNAL).read_bytes()
    assert comparable(swept(recipe, tmp_path / "part", trials=2)) == comparable(whole), "nothing is taken away"
    with pytest.raises(InputError, match="holds a sweep of another recipe, seed or range; choose another `out`"):
        sweep(recipe, [Over.parse(OVER[0])], trials=3, out=tmp_path / "part", seed=4)
    assert len(before) <= len((tmp_path / "part" / JOURNAL).read_bytes())


def test_a_sweep_that_is_killed_goes_on_to_the_same_end(whole: Sweep, recipe: str, tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from training.learning.ppo import PpoTrainer
from training.runs.sweep import Over, sweep
original, count = PpoTrainer.update, [0]
def killed(self):
    count[0] += 1
    if count[0] == 5:  # in the middle of the second trial
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self)
PpoTrainer.update = killed
sweep({recipe!r}, [Over.parse(each) for each in {OVER!r}], trials=3, out=Path({str(tmp_path / "part")!r}), seed=4)
"""
    done = ended(code)
    assert done.returncode == -9, done.stderr
    assert comparable(swept(recipe, tmp_path / "part")) == comparable(whole)


def test_a_run_that_diverges_is_a_failed_trial(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, count = PpoTrainer.update, [0]

    def diverging(self: PpoTrainer[Any, Any, Any]) -> PpoMetrics:
        count[0] += 1
        if count[0] == 2:
            raise InputError("training diverged at update 2")
        return original(self)

    monkeypatch.setattr(PpoTrainer, "update", diverging)
    found = placelab.sweep(recipe, over=OVER, trials=2, out=tmp_path / "sweep")
    first, second = found.to_json()
    assert (first["failed"], first["step_over_bound"]) == ("training diverged at update 2", None)
    assert second["failed"] is None
    assert isinstance(second["step_over_bound"], float)
    assert found.sweep.best == found.sweep.trials[1]


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ("ppo.learning_rate", "expected KEY=LOW..HIGH"),
        ("ppo.learning_rate=0.1", "expected KEY=LOW..HIGH"),
        ("ppo.learning_rate=1e-2..1e-4", "the lower first"),
        ("ppo.learning_rate=0..1:log", "above 0 if it is :log"),
        ("ppo.learning_rate=a..b", "two numbers"),
        ("ppo.lerning_rate=1e-4..1e-2", "unknown key of a recipe 'ppo.lerning_rate'; did you mean 'ppo.learning_rate'"),
        ("ppo.samples=1.5..3", "ppo.samples=1.5"),
        ("ppo.reward=log|sqr", "ppo.reward=sqr: ppo: unknown reward 'sqr'; did you mean 'sqrt'"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_is_trained(
    over: str, sentence: str, recipe: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        placelab.sweep(recipe, over=[over], out=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_without_optuna_a_sweep_says_what_to_install(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InputError, match=r"needs the package optuna: pip install 'placelab\[sweep\]'"):
        placelab.sweep(recipe, over=OVER, out=tmp_path / "sweep")


def test_a_run_that_validates_is_worth_the_best_of_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step_over_bound": 1.0}\n')
    assert worth(tmp_path) == 1.0
    (tmp_path / "validation.jsonl").write_text(
        '{"step_over_bound": 1.5, "kept": true}\n{"step_over_bound": 1.25, "kept": true}\n'
    )
    assert worth(tmp_path) == 1.25
