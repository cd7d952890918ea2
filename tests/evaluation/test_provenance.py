"""What made a record is in its journal: once, and again where something else goes on."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evaluation.commands.load_placer import load_placer
from evaluation.comparing.compare import compare
from evaluation.records.journal import plans
from evaluation.records.provenance import Provenance, problems_sha256
from graphs.foundation.machine import library_versions, processor_name
from graphs.problem import Problem
from tests.evaluation.some_placers import Alternating
from tests.oracle.toys import toy_cluster, toy_graph
from tests.placers.stand_in import stand_in

PROBLEM = Problem(toy_graph([1, 2, 3], [(0, 1), (1, 2)]), toy_cluster(2))


def compared(journal: Path, **asked: Any) -> list[Provenance]:
    """What made each entry of a journal, after a comparison."""
    compare(asked.pop("placers", [Alternating()]), [PROBLEM], journal=journal, quiet=True, **asked)
    return [made for entry in plans(journal) if isinstance(made := entry.made, Provenance)]


def said(journal: Path) -> list[bool]:
    """Whether each line after the first says what made it."""
    return ["made" in msgspec.json.decode(line) for line in journal.read_bytes().splitlines()[1:]]


def test_a_journal_says_once_what_made_its_records(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    made = compared(journal, seeds=[0, 1, 2])
    assert said(journal) == [True, False, False]
    assert [each.versions for each in made] == [library_versions()] * 3
    assert made[0].cpu
    assert made[0].command.startswith("python ")
    assert len(made[0].suite) == 64


def test_what_another_command_adds_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "j.jsonl"
    compared(journal, seeds=[0])
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/placelab", "compare", "a model"])
    made = compared(journal, seeds=[0, 1, 2])
    assert said(journal) == [True, True, False]
    assert [each.command == "placelab compare 'a model'" for each in made] == [False, True, True]


def test_a_journal_from_before_is_read_and_added_to(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    compared(journal, seeds=[0])
    header, line = journal.read_bytes().splitlines()
    older = msgspec.json.decode(line)
    del older["made"]
    journal.write_bytes(b"\n".join([header, msgspec.json.encode(older), b""]))
    assert [entry.made for entry in plans(journal)] == [msgspec.UNSET]
    assert len(compared(journal, seeds=[0, 1])) == 1
    assert said(journal) == [False, True]


@pytest.mark.parametrize("spec", ["{}", "annealing:policy={}", "{}+finetuned"])
def test_the_weights_of_a_policy_are_named_by_their_hash(spec: str, tmp_path: Path) -> None:
    folder = stand_in(tmp_path / "run")
    placer = load_placer(spec.format(folder))
    digits = hashlib.sha256((folder / "policy.safetensors").read_bytes()).hexdigest()
    assert Provenance.now([placer, load_placer("metis")]).policies == {placer.name: digits}


def test_the_problems_are_named_by_one_hash_whatever_their_order(tmp_path: Path) -> None:
    assert problems_sha256("ab") == problems_sha256("ba") != problems_sha256("ac")
    one, other = (
        compare([Alternating()], some, journal=tmp_path / name, quiet=True) and plans(tmp_path / name)[0].made
        for some, name in (([PROBLEM], "a"), ([replace(PROBLEM, optimizer="sgd")], "b"))
    )
    assert isinstance(one, Provenance)
    assert isinstance(other, Provenance)
    assert one.suite != other.suite


def test_the_processor_is_named_as_the_system_names_it() -> None:
    known = Path("/proc/cpuinfo")
    if not known.is_file() or "model name" not in known.read_text():
        pytest.skip("the system does not say")
    assert f"model name\t: {processor_name()}\n" in known.read_text()
