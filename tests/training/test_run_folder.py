"""A run folder survives whatever stops a run, and is refused before the work where it cannot be written."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO, LONGEST_PATH
from placers.learned.settings import Ppo
from tests.forked import ended
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.metrics_lines import metrics_lines
from training.learning.ppo import PpoMetrics, PpoTrainer
from training.recipe import Recipe, load_recipe
from training.runs.problem_sets import ProblemSplit
from training.runs.run_folder import TRAINER, RunFolder
from training.runs.train import train

RECIPE = Recipe(
    network="graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2",
    ppo=Ppo(updates=3, samples=4, problems_per_update=2, epochs=1),
)


class KilledError(Exception):
    """What stops a run without any warning."""


def problems() -> list[Problem]:
    return [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in (6, 9)]


def weights(placer: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in placer.policy.state_dict().values()])


def killed_at(update: int, monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """A run that is killed in an update, before the first checkpoint that training itself writes."""
    original = PpoTrainer.update

    def killed(self: PpoTrainer[Any, Any, Any]) -> PpoMetrics:
        if self.updates + 1 == update:
            raise KilledError
        return original(self)

    with monkeypatch.context() as patched:
        patched.setattr(PpoTrainer, "update", killed)
        with pytest.raises(KilledError):
            train(RECIPE, problems(), out=out, seed=1)


@pytest.mark.parametrize("update", [1, 3])
@pytest.mark.parametrize("resume", [True, False])
def test_a_run_killed_before_its_first_checkpoint_is_resumed_or_restarted(
    update: int, resume: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    killed_at(update, monkeypatch, tmp_path / "killed")
    whole = train(RECIPE, problems(), out=tmp_path / "whole", seed=1)
    again = train(RECIPE, problems(), out=tmp_path / "killed", seed=1, resume=resume)
    assert torch.equal(weights(whole), weights(again))
    assert metrics_lines(tmp_path / "whole") == metrics_lines(tmp_path / "killed")
    for name in (TRAINER, "policy.safetensors", "meta.json", "config.toml"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes(), name


def test_a_run_killed_before_any_checkpoint_is_resumed_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(RECIPE.to_toml())
    train(RECIPE, problems(), out=tmp_path, seed=1, resume=True)
    assert RunFolder(tmp_path).read_state()[1]["updates"] == "3"


def test_what_has_been_trained_is_not_overwritten(tmp_path: Path) -> None:
    train(RECIPE, problems(), out=tmp_path, seed=1)
    for left in ("trainer.safetensors", "meta.json"):
        (tmp_path / left).rename(tmp_path / "aside")
        with pytest.raises(InputError, match="holds a run already; resume it with `resume=True`, or choose"):
            RunFolder(tmp_path).check_free()
        (tmp_path / "aside").rename(tmp_path / left)
    (tmp_path / TRAINER).unlink()
    with pytest.raises(InputError, match=r"no state to resume its training from \(trainer.safetensors is missing\)"):
        train(RECIPE, problems(), out=tmp_path, seed=1, resume=True)


def test_no_folder_is_made_before_the_problems_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object, **__: object) -> list[Problem]:
        assert not (tmp_path / "run").exists()
        raise InputError("no such graph")

    monkeypatch.setattr(ProblemSplit, "problems", refused)
    with pytest.raises(InputError, match="no such graph"):
        train(RECIPE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resume", [True, False])
def test_what_can_be_no_run_folder_is_refused_before_anything_is_captured(
    resume: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ProblemSplit, "problems", lambda *_, **__: pytest.fail("captured"))
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        with pytest.raises(InputError, match=r"cannot write the run to .*file is a file; name a folder"):
            train(RECIPE, out=out, resume=resume)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot write the run to .*: permission denied in"):
        train(RECIPE, out=tmp_path / "new" / "run", resume=resume)


@pytest.mark.parametrize("resume", [True, False])
def test_a_seed_below_0_is_refused(resume: bool, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the seed is -1; expected 0 or more"):
        train(RECIPE, out=tmp_path, seed=-1, resume=resume)


def test_all_files_of_a_run_have_the_permissions_of_new_files(tmp_path: Path) -> None:
    train(RECIPE, problems(), out=tmp_path)
    (tmp_path / "new").write_text("")
    usual = stat.S_IMODE((tmp_path / "new").stat().st_mode)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 8
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in files} == {path.name: usual for path in files}


def test_equal_states_are_equal_bytes_whatever_the_order_of_their_counters(tmp_path: Path) -> None:
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, dtype=torch.int64)}
    counters = {f"counter {i}": str(i) for i in range(20)}
    written = set()
    for _ in range(5):
        RunFolder(tmp_path).write_state(tensors, counters)
        written.add((tmp_path / TRAINER).read_bytes())
    assert len(written) == 1
    read, found = RunFolder(tmp_path).read_state()
    assert found == counters
    assert all(torch.equal(read[key], tensors[key]) for key in tensors)


def test_tensorboard_reads_the_numbers(tmp_path: Path) -> None:
    with RunFolder(tmp_path).metrics(["tensorboard"], {}) as metrics:
        for each in metrics:
            each.write(1, {"update": 1, "loss": 0.5})
            each.write(2, {"update": 2, "loss": float("nan")})
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("update")] == [(1, 1.0), (2, 2.0)]
    assert next(event.value for event in board.Scalars("loss")) == 0.5
    assert [json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0.5, None]


@pytest.mark.parametrize(
    ("bytes_at_most", "file"),
    [(9_000, "trainer.safetensors"), pytest.param(100_000, "tfevents|metrics", marks=pytest.mark.slow)],
)
def test_a_full_disk_names_the_file_and_keeps_the_last_checkpoint(
    bytes_at_most: int, file: str, tmp_path: Path
) -> None:
    code = f"""
import resource, sys
from pathlib import Path
from msgspec.structs import replace
from graphs.foundation.errors import InputError
from tests.training.test_run_folder import RECIPE, problems
from training.runs.train import train
recipe = replace(RECIPE, ppo=replace(RECIPE.ppo, updates=2000))
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_at_most}, {bytes_at_most}))
try:
    train(recipe, problems(), out=Path("run"))
except InputError as error:
    print(error)
"""
    done = ended(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (sentence,) = done.stdout.splitlines()
    assert sentence.startswith("cannot write run/")
    assert any(name in sentence for name in file.split("|"))
    if file != TRAINER:
        assert RunFolder(tmp_path / "run").read_state()[0]
    assert not list((tmp_path / "run").glob(".*unfinished"))


def test_two_processes_do_not_train_into_one_folder(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path / "run").held(),
        pytest.raises(InputError, match=rf"another process \({os.getpid()}\) is writing"),
    ):
        train(RECIPE, problems(), out=tmp_path / "run", seed=1)
    train(RECIPE, problems(), out=tmp_path / "run", seed=1)
    assert not list((tmp_path / "run").glob(".*"))


def test_a_run_from_before_recipes_named_an_order_was_trained_first_come_first_served(tmp_path: Path) -> None:
    recipe = load_recipe("gdp")
    (tmp_path / "config.toml").write_text(recipe.to_toml())
    assert RunFolder(tmp_path).recipe == recipe
    assert recipe.problems.order == LONGEST_PATH.name
    (tmp_path / "config.toml").write_text(recipe.to_toml().replace(f'order = "{LONGEST_PATH}"\n', ""))
    assert RunFolder(tmp_path).recipe == replace(recipe, problems=replace(recipe.problems, order=FIFO.name))
