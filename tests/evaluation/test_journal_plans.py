"""Plans in a journal: by units, with their orders, whole, divided, and by groups."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envs.files.plan_file import load_plan
from envs.files.plan_sections import ScheduleSection
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import load_placer
from evaluation.comparing.compare import compare
from evaluation.records.journal import plans
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.placer import as_result
from tests.envs.expansion.divided_graphs import mlp
from tests.evaluation.some_placers import Alternating
from tests.evaluation.test_journal import PROBLEM, new_records
from tests.oracle.toys import toy_cluster, toy_graph


def test_plans_are_kept_by_units_and_written_where_asked_for(tmp_path: Path) -> None:
    journal, folder = tmp_path / "j.jsonl", tmp_path / "plans"
    other = replace(PROBLEM, cluster=toy_cluster(2, latency=0.5))
    odd = "a/b:c\n" * 100
    compare([Alternating(), Alternating(odd, 3)], [PROBLEM, other], seeds=[0, 1], journal=journal, quiet=True)
    kept = plans(journal)
    assert len(kept) == 8
    for entry in kept:
        problem = PROBLEM if entry.cluster == PROBLEM.cluster.fingerprint else other
        assert len(entry.devices) == problem.graph.num_units
        assert simulate(problem, entry.plan(problem)).step_seconds == entry.record.step_seconds
        assert entry.plan(problem).order is None
        assert entry.record.conditions.runtime == problem.runtime.name
    with pytest.raises(InputError, match=r"the plan of .* is none for 'easy@toy2'"):
        kept[0].plan(Problem(toy_graph([1], [], name="easy"), toy_cluster(2)))
    found = compare([Alternating(), Alternating(odd, 3)], [PROBLEM, other], seeds=[0, 1], journal=journal,
                    plans=folder, quiet=True)  # fmt: skip
    written = sorted(folder.iterdir())
    assert len(written) == len(found.records) == 8
    assert all(path.name.endswith(".plan.json") and len(path.name) < 255 for path in written)
    for path in written:
        problem = PROBLEM if f'"{PROBLEM.cluster.fingerprint}"' in path.read_text() else other
        assert load_plan(path, problem).placer in ("alternating", odd)


class Ordered:
    """All on the first device, in an order of its own: by unit, or by op."""

    def __init__(self, numbers: list[float]) -> None:
        self.name, self.numbers = f"ordered{len(numbers)}", numbers

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        zeros = [0] * problem.graph.num_units
        return PlacerResult.of_units(problem, zeros, self.name, seed, order=self.numbers)


def test_the_order_of_a_plan_is_kept(tmp_path: Path) -> None:
    problem = replace(PROBLEM, graph=replace(toy_graph([1, 2, 3], []), group=np.array([0, -1, 0])))
    placers = [Ordered([2.5, 0.1]), Ordered([1.0, 2.0, 3.0])]
    compare(placers, [problem], journal=tmp_path / "j.jsonl", plans=tmp_path / "plans", quiet=True)
    by_unit, by_op = plans(tmp_path / "j.jsonl")
    assert by_unit.order == (2.5, 0.1)
    assert by_unit.plan(problem).order == (2.5, 0.1, 2.5)
    assert by_op.plan(problem).order == (1.0, 2.0, 3.0)
    assert {load_plan(path, problem).plan.order for path in (tmp_path / "plans").iterdir()} == {
        entry.plan(problem).order for entry in (by_unit, by_op)
    }
    with pytest.raises(InputError, match="is damaged: its order is for other ops"):
        msgspec.structs.replace(by_unit, order=(1.0,)).plan(problem)
    assert by_op.plan(problem) == Plan.of_units(problem, [0, 0], order=[1.0, 2.0, 3.0])


class Whole:
    """A pipeline of two stages, of which the first has two replicas."""

    name = "whole"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        half = np.arange(len(problem.graph)) * 2 // len(problem.graph)
        schedule = Schedule(micro_batches=2, stages=tuple(half.tolist()), order="gpipe", recompute=(0,))
        devices = tuple(((0, 1), (1,))[stage] for stage in half.tolist())
        return PlacerResult(Plan(devices, PROGRAM, schedule), self.name, seed)


def test_whole_plans_are_kept_and_said_in_the_records(tmp_path: Path) -> None:
    journal, folder = tmp_path / "j.jsonl", tmp_path / "plans"
    whole, alternating = compare([Whole(), Alternating()], [PROBLEM], journal=journal, plans=folder, quiet=True).records
    assert (whole.micro_batches, whole.replicas, whole.pass_order, whole.order) == (2, (2, 1), "gpipe", "program")
    assert (alternating.micro_batches, alternating.replicas, alternating.pass_order) == (1, (), "")
    assert whole.program_seconds == whole.step_seconds
    entry, plain = plans(journal)
    assert entry.devices == ((0, 1), (0, 1), 1, 1)
    assert entry.plan(PROBLEM) == Whole().place(PROBLEM).plan
    assert simulate(PROBLEM, entry.plan(PROBLEM)).step_seconds == whole.step_seconds
    assert plans(journal) == [entry, plain]
    assert {load_plan(path, PROBLEM).plan for path in folder.iterdir()} == {entry.plan(PROBLEM), plain.plan(PROBLEM)}
    words = [set(msgspec.json.decode(line)) for line in journal.read_bytes().splitlines()[1:]]
    assert words[0] - words[1] == {"schedule", "stages", "made"}, "a placement says no more than it did"
    for damage, what in (
        ({"devices": ((0, 7), (0, 7), 1, 1)}, "device"), ({"stages": (0,)}, "its stages are for other ops"),
        ({"schedule": ScheduleSection(micro_batches=0)}, "0 micro-batches"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"the plan of 'whole' for 'toy@toy2' is damaged: .*{what}"):
            msgspec.structs.replace(entry, **damage).plan(PROBLEM)


def test_what_ops_are_divided_by_is_kept(tmp_path: Path) -> None:
    problem = Problem(mlp([8, 16, 4], 4).graph, toy_cluster(2), optimizer="sgd")
    journal, folder = tmp_path / "j.jsonl", tmp_path / "plans"
    placers = [load_placer("tensor_parallel:others=whole"), load_placer("data_parallel")]
    compare(placers, [problem], journal=journal, plans=folder, quiet=True)
    divided, replicas = plans(journal)
    assert divided.plan(problem).split == as_result(placers[0].place(problem), "", 0).plan.split
    assert divided.plan(problem).mesh == (2,)
    assert simulate(problem, divided.plan(problem)).step_seconds == divided.record.step_seconds
    assert {load_plan(path, problem).plan for path in folder.iterdir()} == {
        entry.plan(problem) for entry in (divided, replicas)
    }
    assert replicas.split is msgspec.UNSET
    with pytest.raises(InputError, match=r"is damaged: its split names one of 3 ways that is not there"):
        msgspec.structs.replace(divided, split=(3,) * len(problem.graph)).plan(problem)


def test_a_whole_plan_of_groups_is_kept_by_group(tmp_path: Path) -> None:
    graph = replace(toy_graph([1] * 26, [(i, i + 1) for i in range(25)]), group=np.arange(26) // 13)
    problem = replace(PROBLEM, graph=graph)
    new_records(tmp_path / "j.jsonl", [Whole()], problems=[problem])
    [entry] = plans(tmp_path / "j.jsonl")
    assert (entry.devices, entry.stages) == (((0, 1), 1), (0, 1))
    assert entry.plan(problem) == Whole().place(problem).plan


def test_a_journal_of_many_ops_in_few_groups_is_small(tmp_path: Path) -> None:
    group = np.arange(26) // 13
    graph = replace(toy_graph([1] * 26, [(i, i + 1) for i in range(25)]), group=group)
    new_records(tmp_path / "j.jsonl", problems=[replace(PROBLEM, graph=graph)])
    assert len(plans(tmp_path / "j.jsonl")[0].devices) == 2
