"""Evaluating and fine-tuning: refused before a model is captured, and never half of what two runs wrote."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import placelab
from envs.costs.costs import timed
from envs.plans.conditions import Conditions
from evaluation.commands.evaluate import evaluate, finetune
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.records.run_files import ProblemFile, load_evaluation, load_problem
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import save_graph
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import IDEAL
from tests.evaluation.some_records import to_text
from tests.oracle.toys import random_graph
from tests.placers.stand_in import stand_in
from training.recipe import ProblemSet
from training.runs.run_folder import RunFolder

MODEL = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
FASTER = "roofline:efficiency=typical"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "run")


@pytest.fixture
def graph(tmp_path: Path) -> str:
    save_graph(random_graph(12, 0), tmp_path / "r.graph.json")
    return str(tmp_path / "r.graph.json")


def tune(run: Path, graph: str, **changed: Any) -> None:
    asked: dict[str, Any] = {"cluster": "p100x2", "groups": 4, "optimizer": "adam", "simulations": 20, "seed": 0}
    asked |= changed
    finetune(run, graph, **asked)


def test_what_cannot_be_is_refused_before_a_model_is_captured(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("captured")

    monkeypatch.setattr("graphs.capture.casting.traced_in", never)
    for changed, sentence in (
        ({"cluster": "p101x2"}, "unknown cluster 'p101x2'"),
        ({"optimizer": "adm"}, "unknown optimizer 'adm'"),
        ({"seed": -1}, "a seed is -1"),
        ({"cost_model": "rooflin"}, "unknown cost model 'rooflin'; did you mean 'roofline'"),
    ):
        with pytest.raises(InputError, match=sentence):
            tune(run, MODEL, **changed)
    asked: dict[str, Callable[[], object]] = {
        "workers is 0": lambda: evaluate(run, ["heft"], workers=0),
        "unknown cost model": lambda: evaluate(run, ["heft"], cost_model="rooflin"),
        "unknown placer": lambda: evaluate(run, ["heff"]),
        "does not exist": lambda: evaluate(run, ["heft"], journal=run / "none" / "j.jsonl"),
        "unknown suite": lambda: evaluate(run, ["heft"], "gdp13"),
    }
    for sentence, ask in asked.items():
        with pytest.raises(InputError, match=sentence):
            ask()
    (run / "evaluation.json").mkdir()
    with pytest.raises(InputError, match="it is a folder; name a file"):
        evaluate(run, ["heft"])


def test_finetuning_and_its_problem_file_are_timed_by_the_cost_model_that_was_named(run: Path, graph: str) -> None:
    tune(run, graph, cost_model=FASTER)
    records = load_evaluation(run / "finetune" / "evaluation.json").records
    assert {record.cost_model for record in records} == {FASTER}
    kept = load_problem(run / "best.problem.json")
    expected = timed(Problem(load_graph(graph, groups=4), load_cluster("p100x2")), FASTER)
    assert kept.timed_by == FASTER
    assert kept.op_seconds is not None
    assert expected.op_seconds is not None
    assert (kept.op_seconds == expected.op_seconds).all()


def test_it_is_said_where_a_problem_is_not_what_the_policy_was_trained_on(run: Path, graph: str) -> None:
    asked: dict[str, Any] = {"cluster": "p100x2", "optimizer": "adam", "simulations": 16, "seed": 0, "groups": 4}
    asked["cost_model"] = "roofline"
    alike = finetune(run, graph, **asked, runtime="ideal").remarks
    other = finetune(run, graph, **asked, runtime="fifo")
    unlike = "The policy was trained with the runtime ideal, and here it is fifo (`--runtime`)."
    assert alike[0] == "Op groups: 4."
    assert unlike in other.remarks
    assert not [said for said in alike if "trained" in said]
    shown = to_text(other)
    assert "Runtime: fifo." in shown
    assert unlike in " ".join(shown.split())


def test_finetuning_takes_what_it_is_not_told_from_the_training(tmp_path: Path, graph: str) -> None:
    run = stand_in(tmp_path / "fifo", ProblemSet(test_groups=5, runtime="fifo"))
    tuned = finetune(run, graph, cluster="p100x2", optimizer="adam", simulations=16, seed=0)
    kept = load_problem(run / "best.problem.json")
    assert (kept.runtime.name, kept.graph.num_units) == (RunFolder(run).recipe.problems.runtimes[0].name, 5)
    assert not [said for said in tuned.remarks if "the runtime" in said or "op groups" in said]


def test_a_comparison_says_in_what_it_differs_from_a_training(run: Path, graph: str) -> None:
    asked: dict[str, Any] = {"clusters": ["v100x2"], "placers": [str(run), "heft"], "budget": 1, "groups": 4}
    said = placelab.compare([graph], **asked, runtime="fifo", cost_model=FASTER).remarks
    (unlike,) = [each for each in said if each.startswith(f"{run} was trained ")]
    for part in ("with the runtime ideal, and here it is fifo (`--runtime`)", FASTER, "v100"):
        assert part in unlike
    assert not any("trained" in each for each in placelab.compare([graph], **asked | {"placers": ["heft"]}).remarks)


@pytest.mark.parametrize(("rival", "exact"), [("data_parallel", True), ("heft", False)])
def test_what_grows_with_the_batch_is_found_out_exactly_for_plans_that_divide_it(
    rival: str, exact: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, capture: Callable[[str], OpGraph]) -> list[Problem]:
        law = capture(MODEL).batch_law
        assert law is not None
        assert law.knows_ops == exact
        raise InputError("seen")

    monkeypatch.setattr("evaluation.commands.evaluate.load_problems", asked)
    with pytest.raises(InputError, match="seen"):
        evaluate(run, [rival])


def test_finetuning_asks_for_it_too(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(placers: object, problems: list[Problem], **_: object) -> None:
        assert (law := problems[0].graph.batch_law) is not None
        assert law.knows_ops
        raise InputError("seen")

    monkeypatch.setattr("evaluation.commands.evaluate.compare", compared)
    with pytest.raises(InputError, match="seen"):
        tune(run, MODEL)


def test_a_problem_file_without_a_cost_model_is_of_the_one_that_follows_from_its_graph(
    tmp_path: Path, graph: str
) -> None:
    path = tmp_path / "best.problem.json"
    write_document(ProblemFile(graph=graph, groups=4, cluster="p100x2", optimizer="sgd"), path)
    assert "cost_model" not in json.loads(path.read_text())
    assert load_problem(path).timed_by == "roofline"
    assert load_problem(path).runtime == IDEAL


@pytest.mark.parametrize("runtime", ["parallelize:host=30us", "fifo"])
def test_a_problem_file_says_how_plans_are_run(tmp_path: Path, graph: str, runtime: str) -> None:
    """Older ones name the order alone, of the ideal machine."""
    path = tmp_path / "best.problem.json"
    given = ProblemFile(graph=graph, groups=4, cluster="p100x2", optimizer="sgd", runtime=runtime)
    write_document(given, path)
    assert load_problem(path).runtime.name == runtime
    write_document(replace(given, runtime="ideal", order="program"), path)
    assert load_problem(path).runtime == IDEAL.with_knobs(order="program")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was fine-tuned on another graph than `graph`."""
    folder = tmp_path_factory.mktemp("tuned")
    save_graph(random_graph(13, 1), folder / "other.graph.json")
    run = stand_in(folder / "run")
    tune(run, str(folder / "other.graph.json"))
    return run


@pytest.mark.parametrize("stopped_at", range(5))
def test_finetuning_that_is_stopped_while_it_writes_leaves_nothing_of_two_runs(
    stopped_at: int, tuned: Path, graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(tuned, tmp_path / "run"))
    here, policy_file = "evaluation.commands.evaluate", "placers.learned.policy_file"
    document = f"{here}.write_document"
    steps = [f"{here}.write_whole", f"{policy_file}.save_policy", document, document, f"{here}.SimulatedPlan.save"]
    before = iter([write_document] if stopped_at == 3 else [])  # the evaluation comes before the problem

    def stop(*given: Any, **_: object) -> None:
        if (write := next(before, None)) is None:
            raise KeyboardInterrupt
        write(*given)

    monkeypatch.setattr(steps[stopped_at], stop)
    with pytest.raises(KeyboardInterrupt):
        tune(run, graph)
    assert not (run / "best.plan.json").exists(), "of the other graph, next to what is of this one"
    assert (run / "finetune" / "evaluation.json").exists() == (stopped_at > 2)


def test_a_policy_is_fine_tuned_as_is_asked(run: Path) -> None:
    """In another runtime and precision than those of its recipe; its files say so, and hold plans for them."""
    asked = {"runtime": "megatron", "host": "70us", "precision": "bf16-mixed", "cost_model": FASTER}
    tune(run, MODEL, **asked)
    expected = Conditions(
        runtime="megatron:host=70us", precision="bf16-mixed", cost_model=FASTER, optimizer="adam", reserve="1.5GiB+9%"
    )
    records = load_evaluation(run / "finetune" / "evaluation.json").records
    assert {record.conditions for record in records} == {expected}
    problem = load_problem(run / "best.problem.json")
    assert Conditions.of(problem) == expected
    found = SimulatedPlan.of(problem, run / "best.plan.json")
    assert found.result.made_for == expected
    best = min(record.step_seconds for record in records if record.placer.endswith("+finetuned"))
    assert found.timeline.step_seconds == best
