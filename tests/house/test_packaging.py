"""The wheel holds what works only as files: recipes, efficiencies, templates, and the released policy."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDIES = ROOT / "evaluation/studies"
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
IGNORED = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]  # nor built into wheels
DATA = [
    path.relative_to(ROOT).as_posix()
    for folder in WHEEL["only-include"]
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".toml", ".j2", ".js", ".css"} and not path.is_relative_to(STUDIES)
]
RELEASED = [
    f"placers/{folder}/{name}"
    for folder in ("released", "released_world")
    for name in ("policy.safetensors", "meta.json", "config.toml", "card.md")
]


def is_left_out(file: str) -> bool:
    patterns = [*IGNORED, *WHEEL["exclude"]]
    at_root = [pattern[1:] for pattern in patterns if pattern.startswith("/")]
    anywhere = [pattern for pattern in patterns if not pattern.startswith("/")]
    parents = [file, *(parent.as_posix() for parent in Path(file).parents)]
    return any(fnmatch(path, pattern) for path in parents for pattern in at_root) or any(
        fnmatch(part, pattern) for part in Path(file).parts for pattern in anywhere
    )


def test_data_files_are_found() -> None:
    assert {Path(file).parent.as_posix() for file in DATA} >= {"training/recipes", "evaluation/drawing/templates"}


@pytest.mark.parametrize("file", [*DATA, *RELEASED])
def test_what_is_needed_is_packed(file: str) -> None:
    assert not is_left_out(file)
    assert file.partition("/")[0] in WHEEL["only-include"]


@pytest.mark.parametrize("file", ["tensorboard/events.out.tfevents.1", "metrics.jsonl", "trainer.safetensors"])
def test_what_only_training_needs_is_not(file: str) -> None:
    assert is_left_out(f"placers/released/{file}")
    assert is_left_out(f"placers/released_world/{file}")
    assert not is_left_out(f"placers/{file}"), "elsewhere it may mean something else"


def test_studies_are_not_packed_and_nothing_else_imports_them() -> None:
    studies = [path.relative_to(ROOT).as_posix() for path in STUDIES.rglob("*.*")]
    assert {Path(file).suffix for file in studies} >= {".py", ".j2", ".md"}
    assert all(is_left_out(file) for file in studies)
    packed = [path for name in WHEEL["only-include"] for path in (ROOT / name, *(ROOT / name).rglob("*.py"))]
    others = [path for path in packed if path.is_file() and not path.is_relative_to(STUDIES)]
    assert len(others) > 100
    assert not [path for path in others if "evaluation.studies" in path.read_text()]
