"""The README is short, its picture can be drawn again, and all that it tells a reader to run does run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import placelab
from tests.front_door.pages import ROOT, blocks, commands

README = ROOT / "README.md"
TEXT = README.read_text()
SHOWN, EXPECTED = blocks(README, "text")
FEW = {"place": ["--budget", "20"], "fits": ["--budget", "4"], "export": []}
BY_DEMO = {"train", "evaluate", "finetune"}  # which `make demo` runs, in minutes


def test_it_can_be_read_in_a_minute() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_its_pictures_are_light_and_drawn_by_a_command_that_exists() -> None:
    pictures = [ROOT / name for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)]
    assert pictures
    assert all(0 < path.stat().st_size < 300_000 for path in pictures)
    [command] = re.findall(r"`make (pictures)`", TEXT)
    assert f"\n{command}: setup" in (ROOT / "Makefile").read_text()
    drawn = (ROOT / "docs/pictures/step.svg").read_text()
    assert re.search(r"An expert's plan.*: \d+ ms a step", drawn)
    assert re.search(r"placelab's plan: \d+ ms a step", drawn)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader, with the files that the README shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    for block in blocks(README, "python"):
        name, _, _ = block.removeprefix("# ").partition("\n")
        Path(name).write_text(block)
    return tmp_path


def test_the_quickstart_prints_what_the_readme_says(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile((reader / "train.py").read_text(), "train.py", "exec"), {})
    numbers, words = re.compile(r"\d+\.\d+"), capsys.readouterr().out
    assert numbers.sub("#", words) == numbers.sub("#", EXPECTED)
    printed, expected = (list(map(float, numbers.findall(text))) for text in (words, EXPECTED))
    assert printed == pytest.approx(expected, rel=0.02)


def test_its_commands_run_one_after_the_other(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [shlex.split(command, comments=True)[1:] for command in commands(README)]
    assert {words[0] for words in given} == {*FEW, *BY_DEMO}
    for words in (words for words in given if words[0] in FEW):
        monkeypatch.setattr(sys, "argv", ["placelab", *words, *FEW[words[0]]])
        with pytest.raises(SystemExit) as stop:
            placelab.main()
        said = capsys.readouterr()
        assert stop.value.code == 0, said.err
        assert said.out
        if "llama.plan.json" in words:
            numbers = re.compile(r"[\d.]+")
            assert numbers.sub("#", SHOWN.splitlines()[0]) == numbers.sub("#", said.out.splitlines()[0])
    assert {path.name for path in reader.iterdir()} >= {"llama.plan.json", "split.plan.json"}


def test_every_target_of_make_that_it_names_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake (\w+)", TEXT)) <= targets


def test_every_floor_is_on_the_map() -> None:
    assert all(f"\n{floor}/" in TEXT for floor in ("graphs", "envs", "placers", "training", "evaluation"))
