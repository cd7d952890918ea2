"""The journal: a record is found again by all that it depends on, and by nothing else."""

import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.plans.placer_result import PlacerResult
from envs.simulation.simulator import RULES
from evaluation.commands.load_placer import load_placer
from evaluation.comparing.compare import compare
from evaluation.records.journal import Journal, plans, records
from evaluation.records.record import Record
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from placers.contract.placer import Placer
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import load_meta
from placers.learned.sequential.policy import SequentialPolicy
from tests.evaluation.some_placers import Alternating
from tests.oracle.toys import toy_cluster, toy_graph
from tests.placers.stand_in import NETWORK, stand_in

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = Problem(toy_graph([1, 2, 3, 4], [(0, 1), (1, 2), (2, 3)], weights=[1], weight_uses=[(0, 0)]), toy_cluster(2))


def new_records(journal: Path, placers: list[Placer | str] | None = None, **asked: Any) -> list[Record]:
    """The records of a comparison that the journal did not hold yet."""
    before = {entry.record.key for entry in plans(journal)} if journal.exists() else set()
    problems = asked.pop("problems", [PROBLEM])
    compare(placers or [Alternating()], problems, journal=journal, quiet=True, **asked)
    return [entry.record for entry in plans(journal) if entry.record.key not in before]


CHANGES: dict[str, dict[str, Any]] = {
    "other ops, same name": {"problems": [replace(PROBLEM, graph=toy_graph([2, 2], [(0, 1)]))]},
    "ops in groups": {"problems": [replace(PROBLEM, graph=replace(PROBLEM.graph, group=np.array([0, 0, 1, 1])))]},
    "other links, same name": {"problems": [replace(PROBLEM, cluster=toy_cluster(2, latency=0.5))]},
    "an optimizer": {"problems": [replace(PROBLEM, optimizer="sgd")]},
    "costs": {"problems": [replace(PROBLEM, op_seconds=np.ones((4, 2)))]},
    "a cost model": {"problems": [timed(PROBLEM, "roofline:efficiency=typical")]},
    "an objective": {"problems": [replace(PROBLEM, objective=objective_of("max-load"))]},
    "a budget": {"budget": 7},
    "a seed": {"seeds": [1]},
    "a knob that the name does not tell": {"placers": [Alternating(every=3)]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_of_anything_else_is_not_taken_for_the_one_that_was_asked_for(change: str, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    [before] = new_records(journal)
    [after] = new_records(journal, **CHANGES[change])
    assert after.key != before.key
    assert new_records(journal) == []
    assert new_records(journal, **CHANGES[change]) == []
    asked: dict[str, Any] = {"placers": [Alternating()], "problems": [PROBLEM], "quiet": True} | CHANGES[change]
    alone = compare(**asked)
    assert replace_seconds(alone.records[0]) == replace_seconds(after)


def replace_seconds(record: Record) -> dict[str, object]:
    return {key: getattr(record, key) for key in record.__struct_fields__ if key != "search_seconds"}


def test_a_record_of_other_rules_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "j.jsonl"
    new_records(journal)
    monkeypatch.setattr("evaluation.records.identity.RULES", RULES + 1)
    assert len(new_records(journal)) == 1


@pytest.mark.parametrize("spec", ["{}", "annealing:policy={}", "{}+finetuned"])
def test_a_policy_that_was_trained_again_in_its_folder_is_another(spec: str, tmp_path: Path) -> None:
    journal, folder = tmp_path / "j.jsonl", stand_in(tmp_path / "run")

    def again() -> list[Record]:
        return new_records(journal, [load_placer(spec.format(folder))], budget=2)

    assert (len(again()), len(again())) == (1, 0)
    save_policy(folder, SequentialPolicy.new(NETWORK, seed=4).state_dict(), load_meta(folder))
    assert (len(again()), len(again())) == (1, 0)


def test_a_file_that_a_placer_reads_counts_by_its_content(tmp_path: Path) -> None:
    journal, split = tmp_path / "j.jsonl", tmp_path / "split.json"
    split.write_text('{"0": ["*"]}')
    spec = f"expert:{split}"
    [before] = new_records(journal, [spec])
    split.write_text('{"0": ["a", "b"], "1": ["*"]}')
    [after] = new_records(journal, [spec])
    assert before.step_seconds != after.step_seconds
    assert new_records(journal, [spec]) == []


def test_an_objective_of_ones_own_counts_by_its_content(tmp_path: Path) -> None:
    own, journal = tmp_path / "own.py", tmp_path / "j.jsonl"
    problem = replace(PROBLEM, objective=objective_of(f"{own}:build"))
    for scale in (1, 10):
        own.write_text(
            "from envs.simulation.simulator import Simulator\n"
            "class Own:\n"
            "    name = 'own'\n"
            "    def evaluator(self, problem):\n"
            "        simulator = Simulator(problem)\n"
            "        seconds = simulator.seconds\n"
            f"        simulator.seconds = lambda *args, **keywords: {scale} * seconds(*args, **keywords)\n"
            "        return simulator\n"
            "def build():\n"
            "    return Own()\n"
        )
        [record] = compare(["heft"], [problem], journal=journal, quiet=True).records
        assert record.objective_value == pytest.approx(scale * record.step_seconds)


def test_problems_of_one_name_are_distinguished_by_their_content(tmp_path: Path) -> None:
    other = replace(PROBLEM, cluster=toy_cluster(2, latency=0.5))
    both = compare([Alternating()], [PROBLEM, other], quiet=True)
    first, second = both.problems
    assert first.startswith("toy@toy2 #")
    assert second.startswith("toy@toy2 #")
    assert first != second
    swapped = compare([Alternating()], [other, PROBLEM], journal=tmp_path / "j.jsonl", quiet=True)
    assert swapped.problems == (second, first), "whatever their order"
    assert new_records(tmp_path / "j.jsonl") == [], "a name in a table is none in the journal"
    with pytest.raises(InputError, match="problem 'toy@toy2' is given twice"):
        compare([Alternating()], [PROBLEM, other, PROBLEM], quiet=True)


def test_what_a_crash_cut_off_is_done_again(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    new_records(journal, seeds=[0, 1])
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    for kept in range(len(whole)):
        journal.write_bytes(whole[:kept])
        complete = max(0, whole[:kept].count(b"\n") - 1)
        assert len(plans(journal)) == complete
        with Journal.open(journal) as opened:
            assert len(opened.entries) == complete
        assert journal.read_bytes() == b"".join(lines[: complete + 1])
    journal.write_bytes(whole[:-20])
    assert len(new_records(journal, seeds=[0, 1])) == 1
    assert [r.seed for r in records(journal)] == [0, 1]


@dataclass(frozen=True)
class Interrupted:
    """Gets Ctrl-C while it places."""

    name: str = "interrupted"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        raise KeyboardInterrupt("a search: saved in file")


def test_ctrl_c_says_what_is_kept_and_leaves_no_lock(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    with pytest.raises(KeyboardInterrupt) as stop:
        new_records(journal, [Alternating(), Interrupted()])
    assert str(stop.value) == (
        f"a search: saved in file; stopped after 1 of 2 plans; {journal} keeps them, and the same command resumes from "
        "there"
    )
    assert len(records(journal)) == 1
    assert sorted(tmp_path.iterdir()) == [journal]


def test_reading_leaves_the_file_to_who_is_writing_it(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    new_records(journal)
    with journal.open("ab") as file:
        file.write(b'{"record": {"prob')
    before = journal.read_bytes()
    assert len(records(journal)) == 1
    assert journal.read_bytes() == before
    assert records(tmp_path / "none.jsonl") == []


def test_of_several_budgets_only_the_one_that_was_asked_for_is_read(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    new_records(journal, budget=1)
    new_records(journal, budget=2)
    assert [record.budget for record in records(journal, {"alternating": 1})] == [1]
    assert [record.budget for record in records(journal)] == [2], "the last of each problem, placer and seed"
    assert records(journal, {"another": 1}) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"schema":"placelab.comparison","version":1,"budgets":{}}\n', "do not say which graph, costs and budget"),
        ('{"schema":"placelab.comparison","version":9}\n', "written as version 9, this placelab reads version 2"),
        ("{}\n", "is no journal of a comparison: .*; name another file"),
        ('{"schema":"placelab.comparison","version":2}\n{"a": 1}\n', "is no journal of a comparison"),
    ],
)
def test_what_is_no_journal_is_refused_and_left_alone(content: str, sentence: str, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    journal.write_text(content)
    with pytest.raises(InputError, match=sentence):
        new_records(journal)
    with pytest.raises(InputError, match=sentence):
        records(journal)
    assert journal.read_text() == content


def test_a_second_process_is_refused_and_one_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    script = (
        "import sys, time; from pathlib import Path; from evaluation.records.journal import Journal\n"
        "with Journal.open(Path(sys.argv[1])): print('open', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, journal], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(InputError, match=rf"another process \({holder.pid}\) is writing .*; wait until it ends"):
            new_records(journal)
        assert records(journal) == [], "reading is no writing"
    finally:
        holder.kill()
        holder.communicate()
    assert len(new_records(journal)) == 1
    assert sorted(tmp_path.iterdir()) == [journal]


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """Files may grow to a number of bytes, as on a disk that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_named_with_the_file_and_leaves_it_whole(tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    with no_room_beyond(10), pytest.raises(InputError, match=r"cannot write .*j\.jsonl: File too large"):
        new_records(journal)
    assert not journal.exists()
    new_records(journal)
    before = journal.read_bytes()
    with no_room_beyond(len(before) + 10), pytest.raises(InputError, match=r"cannot write .*; what it holds already"):
        new_records(journal, seeds=[1])
    assert journal.read_bytes() == before
    assert len(new_records(journal, seeds=[0, 1])) == 1


def test_everything_is_checked_before_anything_is_placed(tmp_path: Path) -> None:
    nothing = replace(PROBLEM, op_seconds=np.zeros((4, 2)))
    file = tmp_path / "file"
    file.write_text("")
    refused: dict[str, Callable[[], object]] = {
        "a seed is -1; expected whole numbers >= 0": lambda: compare([Alternating()], [PROBLEM], seeds=[0, -1]),
        "seed 1 is given twice": lambda: compare([Alternating()], [PROBLEM], seeds=[1, 1]),
        "the budget of 'alternating' is -1 simulations": lambda: compare([Alternating()], [PROBLEM], budget=-1),
        "the budget of 'alternating' is -2": lambda: compare([Alternating()], [PROBLEM], budget={"alternating": -2}),
        "all ops of toy@toy2 take 0 s": lambda: compare([Alternating()], [nothing]),
        "does not exist": lambda: compare([Alternating()], [PROBLEM], journal=tmp_path / "none" / "j.jsonl"),
        "it is a folder; name a file": lambda: compare([Alternating()], [PROBLEM], journal=tmp_path),
        "it is a file; name a folder": lambda: compare([Alternating()], [PROBLEM], plans=file),
    }
    for sentence, ask in refused.items():
        with pytest.raises(InputError, match=sentence):
            ask()
