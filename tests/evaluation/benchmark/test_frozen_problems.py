"""What is frozen is what it was, or it is refused; that it would be captured otherwise now is said."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envs.costs import costs
from envs.costs.costs import timed
from envs.simulation.simulator import RULES, simulate
from evaluation.benchmark import freezing
from evaluation.benchmark.problem_file import (
    FOLDER,
    INDEX,
    Benchmark,
    cluster_path,
    content_sha256,
    graph_path,
    suite_sha256,
)
from evaluation.benchmark.suites import BENCHMARKS
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import load_graph_file
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import runtime_of
from placers.data_parallel import DataParallel
from tests.evaluation.benchmark import tiny

BENCHMARK = Benchmark.load()
SECOND = Benchmark.load(FOLDER.with_name("placelab-bench-2"))
SAMPLE = (  # a problem of each kind, whose models are quick to capture
    "cifar10:cell=16@p100:devices=2",
    "rnnlm:rnnlm-2@p100:devices=2",
    "transformer:layers=8,width=512,heads=8,sequence=256,batch=32@p100:devices=2",
)
DRIFTED = "rnnlm:rnnlm-2@p100:devices=2"  # its first states were read through an alias, which PyTorch does not make


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A benchmark of its own, to change."""
    return Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench"))


def test_every_suite_is_frozen_as_it_is_listed() -> None:
    for benchmark in (BENCHMARK, SECOND):
        suites = BENCHMARKS[benchmark.index.name]
        assert set(benchmark.suites) == set(suites)
        for name, suite in suites.items():
            assert {each.made_from for each in benchmark.chosen(name)} == set(suite.pairs())
            made = {(each.runtime, each.precision, each.reserve, each.room) for each in benchmark.chosen(name)}
            assert made == {(suite.runtime, suite.precision, suite.reserve, suite.room)}
    large = [each.units for each in BENCHMARK.chosen("large")]
    assert 5_000 <= min(large) < 50_000 <= max(large)


@pytest.mark.parametrize(("benchmark", "most_bytes"), [(BENCHMARK, 20e6), (SECOND, 2e6)], ids=["first", "second"])
def test_every_file_is_there_and_no_other(benchmark: Benchmark, most_bytes: float) -> None:
    named = {graph_path(each.graph) for each in benchmark.index.problems}
    named |= {cluster_path(each.cluster) for each in benchmark.index.problems}
    left_out = {graph_path(sha256) for sha256 in benchmark.index.made_on_request}
    found = {path.relative_to(benchmark.folder).as_posix() for path in benchmark.folder.glob("*/*.json*")}
    assert found | left_out == named
    assert sum(path.stat().st_size for path in benchmark.folder.rglob("*")) < most_bytes


def test_the_second_is_run_by_hosts_in_the_memory_that_programs_leave() -> None:
    """Of each suite a problem is what it was made from; one with little memory would be frozen so again."""
    suites = "loop", "processes", "tight", "layers"
    chosen = [min(SECOND.chosen(name), key=lambda each: each.units) for name in suites]
    problems = [SECOND.problem(each) for each in chosen]
    assert all(each.host is not None for each in problems)
    assert {each.timed_by for each in problems} == {"roofline:efficiency=measured"}
    assert [bool(each.cluster.devices[0].reserved_bytes) for each in problems] == [True, True, False, True]
    assert ["bf16" in each.graph.precisions for each in problems] == [True, False, False, True]
    has = load_cluster(chosen[2].made_from[1]).memory_bytes
    assert (problems[2].cluster.memory_bytes < has).all()
    assert list(freezing.drifted(SECOND, chosen[2:3])) == []


@pytest.mark.parametrize("name", SAMPLE)
def test_a_problem_is_what_was_frozen(name: str) -> None:
    frozen = BENCHMARK.named(name)
    problem = BENCHMARK.problem(frozen)
    assert (problem.name, len(problem.units), len(problem.cluster)) == (name, frozen.units, frozen.devices)
    assert (problem.graph.batch_law is not None and problem.graph.batch_law.knows_ops) == frozen.whole_plans


@pytest.mark.slow  # reads 354 problems
def test_all_problems_are_what_was_frozen() -> None:
    left_out = set(BENCHMARK.index.made_on_request)
    for frozen in BENCHMARK.index.problems:
        if frozen.graph not in left_out:
            assert len(BENCHMARK.problem(frozen).units) == frozen.units


def test_a_sample_would_be_frozen_as_it_is() -> None:
    problems = [BENCHMARK.named(name) for name in SAMPLE if name != DRIFTED]
    assert list(freezing.drifted(BENCHMARK, problems)) == [], "what is frozen still counts; say it in the changelog"


def test_what_has_drifted_is_the_same_but_for_signatures(tmp_path: Path) -> None:
    frozen = BENCHMARK.named(DRIFTED)
    [sentence] = freezing.drifted(BENCHMARK, [frozen])
    assert "its graph would differ" in sentence
    (tmp_path / "graphs").mkdir()
    now, _ = freezing._write_graph(freezing._made(frozen), tmp_path)
    graph = load_graph_file(tmp_path / graph_path(now))
    assert graph.fingerprint == BENCHMARK.problem(frozen).graph.fingerprint


def test_drift_is_said_in_a_sentence() -> None:
    bench = Benchmark.load(tiny.FOLDER)
    [drifted] = [msgspec.structs.replace(bench.chosen("ops")[0], graph="0" * 64)]
    [sentence] = freezing.drifted(bench, [drifted])
    assert "has drifted: captured now, its graph would differ" in sentence


def test_problems_are_frozen_with_a_runtime_and_a_cost_model(tmp_path: Path) -> None:
    """What is read is the problem that `place` makes of the same specs, with all that its graph knows of memory."""
    measured, spec = "roofline:efficiency=measured", tiny.plans()[0]
    suite = replace(tiny.SUITES["plans"], runtime="megatron", cost_model=measured)
    frozen = freezing.freeze(tmp_path / "new", {"plans": suite})
    bench = Benchmark.load(tmp_path / "new")
    assert bench.index == frozen.index
    problem = bench.problem(bench.index.problems[0])
    assert (problem.runtime, problem.timed_by) == (runtime_of("megatron"), measured)
    graph = load_graph(spec[0], groups=None, with_law=True)
    own = timed(Problem(graph, load_cluster(spec[1]), runtime=runtime_of("megatron")), measured)
    plan = DataParallel(micro_batches=2).place(own).plan
    found, expected = simulate(problem, plan), simulate(own, plan)
    assert found.step_seconds == expected.step_seconds
    assert found.peak_bytes.tolist() == expected.peak_bytes.tolist()
    assert list(freezing.drifted(bench, list(bench.index.problems))) == []
    (ideal,) = Benchmark.load(tiny.FOLDER).chosen("plans")
    assert ideal.sha256 != bench.index.problems[0].sha256


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"runtime": "megatorn"}, "unknown runtime 'megatorn'; did you mean 'megatron'"),
        ({"cost_model": "rooflin"}, "unknown cost model 'rooflin'"),
        ({"runtime": "run:order=mine.py:build"}, "it names code, .*, and a file that is opened runs none"),
    ],
)
def test_what_cannot_be_frozen_is_refused_before_anything_is(
    asked: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=sentence):
        freezing.freeze(tmp_path / "new", {name: replace(suite, **asked) for name, suite in tiny.SUITES.items()})
    assert not (tmp_path / "new").exists()


def test_a_changed_graph_is_refused(copied: Path) -> None:
    bench = Benchmark.load(copied)
    frozen, other = bench.chosen("ops")[0], bench.chosen("plans")[0]
    shutil.copyfile(copied / graph_path(other.graph), copied / graph_path(frozen.graph))
    with pytest.raises(InputError, match="is not what was frozen"):
        bench.problem(frozen)
    (copied / graph_path(other.graph)).unlink()
    with pytest.raises(InputError, match=r"is missing; .*freeze-large"):
        bench.problem(other)


def test_other_op_times_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Benchmark.load(tiny.FOLDER)
    known = costs.costs_by

    def slower(problem: Problem, model: costs.CostModel) -> costs.Costs:
        return replace(known(problem, model), op_seconds=2 * known(problem, model).op_seconds)

    monkeypatch.setattr(costs, "costs_by", slower)
    with pytest.raises(InputError, match="gives other times than when tiny-bench-1 was frozen"):
        bench.problem(bench.chosen("ops")[0])


def test_other_rules_and_folders_without_a_benchmark_are_refused(copied: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no benchmark"):
        Benchmark.load(tmp_path)
    with pytest.raises(InputError, match="never changes"):
        freezing.freeze(copied, tiny.SUITES)
    text = (copied / INDEX).read_text()
    (copied / INDEX).write_text(text.replace(f'"rules": {RULES}', f'"rules": {RULES + 1}'))
    with pytest.raises(InputError, match="times would not compare"):
        Benchmark.load(copied)
    (copied / INDEX).write_text(text.replace('"version": 1', '"version": 9'))
    with pytest.raises(InputError, match="written as version 9, this placelab reads version 1"):
        Benchmark.load(copied)


def test_the_hash_of_a_suite_changes_with_any_of_its_problems() -> None:
    problems = BENCHMARK.chosen("gdp12")
    assert suite_sha256(problems) == suite_sha256(problems[::-1]) != suite_sha256(problems[1:])
    with pytest.raises(InputError, match="unknown suite 'gdp'"):
        BENCHMARK.chosen("gdp")


def test_a_graph_that_is_left_out_is_made_again_and_checked(copied: Path) -> None:
    bench = Benchmark.load(copied)
    frozen = bench.chosen("ops")[0]
    (copied / graph_path(frozen.graph)).unlink()
    asked = replace(bench, index=msgspec.structs.replace(bench.index, made_on_request=(frozen.graph,)))
    assert freezing.make_left_out(asked) == [copied / graph_path(frozen.graph)]
    assert content_sha256(copied / graph_path(frozen.graph)) == frozen.graph
