"""The README's first example runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text()
    example = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    exec(compile(example, "README.md", "exec"), {})
    assert re.fullmatch(r"0\.\d{3} s a step, \[.*\] s busy per device\n", capsys.readouterr().out)


def test_every_floor_is_on_the_map() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"\n{floor}/" in readme for floor in ("graphs", "envs", "placers", "training", "evaluation"))
