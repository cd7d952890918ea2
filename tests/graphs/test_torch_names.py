"""What PyTorch does not promise is in one list, and what is missing of it is one sentence."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs.foundation import torch_names
from graphs.foundation.errors import InputError
from graphs.foundation.torch_names import NAMES, RUN, TRIED, check_names, missing_name

ROOT = Path(__file__).resolve().parents[2]
CHECKED_THERE = {"torch.distributed.pipelining.schedules"}  # in `envs/running/pipelined/torch_schedules.py`


def private_names(source: Path) -> Iterator[str]:
    """The names of PyTorch with a part that begins with an underscore, as far as a file reads them as attributes."""
    text, known = source.read_text(), dict[str, str]()
    if "torch" not in text or "._" not in text:
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {each.asname or "torch": each.name if each.asname else "torch" for each in node.names
                      if each.name.split(".")[0] == "torch"}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            parts, at = list[str](), node
            value: ast.expr = at
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in known:
                name = ".".join([known[value.id], *parts[::-1]])
                if any(part.startswith("_") and not part.startswith("__") for part in name.split(".")):
                    yield name


def test_every_private_name_is_in_the_list() -> None:
    listed = {name for names in NAMES.values() for name in names}
    used = {
        name
        for floor in ("envs", "placers", "training", "evaluation")
        for source in (ROOT / floor).rglob("*.py")
        for name in private_names(source)
        if name.rsplit("._", 1)[0] not in CHECKED_THERE
    }
    assert len(used) >= 6
    assert used <= listed


def test_the_version_that_is_tested_has_all_of_them() -> None:
    assert [missing_name(what) for what in NAMES] == [""] * len(NAMES)
    (pinned,) = re.findall(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in TRIED
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"torch>={TRIED[0]}" in required


def test_one_that_is_missing_is_a_sentence_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_names, "NAMES", dict.fromkeys(NAMES, ("torch.nn._gone",)))
    with pytest.raises(InputError, match=r"PyTorch 2.* has no torch.nn._gone, which run needs; install one"):
        check_names(RUN)


def test_submodules_that_nobody_has_imported_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    submodule = "torch.utils.throughput_benchmark.ThroughputBenchmark"
    monkeypatch.setattr(torch_names, "NAMES", {RUN: (submodule, "torch.none.here")})
    assert "has no torch.none.here" in missing_name(RUN)
