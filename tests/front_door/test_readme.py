"""The README's first example runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import placelab

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(r"0\.\d{3} s a step, \[.*\] s busy per device\n", capsys.readouterr().out)


def test_the_model_of_ones_own_is_captured_placed_and_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text()
    [example] = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "my_model.py" in block]
    monkeypatch.chdir(tmp_path)
    Path("my_model.py").write_text(example)
    assert placelab.capture("my_model.py:model", out="mine.graph.json").ops_by_phase.keys() >= {"forward", "backward"}
    placed = placelab.place("mine.graph.json", cluster="v100x4", placer="heft", out="mine.plan.json")
    assert placed.timeline.step_seconds > 0
    [loop] = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "train.py" in block]
    loop = re.sub(r'"cuda:\d"', '"cpu"', loop).replace("(5, 32, 128)", "(1, 2, 16)")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(loop, "README.md", "exec"), names)
    assert bool(torch.isfinite(names["loss"]))


def test_placetos_policy_trains_under_stable_baselines_and_places_another_graph(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (ROOT / "README.md").read_text()
    [example] = [block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "PPO" in block]
    monkeypatch.chdir(tmp_path)
    exec(compile(example.replace("20_000", "256"), "README.md", "exec"), {})
    assert re.fullmatch(r"0\.\d{4} s a step\n", capsys.readouterr().out)
    assert list(tmp_path.glob("runs/sb3/PPO_1/events*"))


def test_every_floor_is_on_the_map() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"\n{floor}/" in readme for floor in ("graphs", "envs", "placers", "training", "evaluation"))
