import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from markupsafe import escape

from envs.files.plan_file import load_plan, save_plan
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from evaluation.comparing.comparison import Comparison
from evaluation.drawing.sections import placer_sheet, problem_sheet
from evaluation.records.run_files import EvaluationFile, Notes, ProblemFile, load_evaluation, load_problem
from evaluation.reporting.report import write_report
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.evaluation.some_records import LEARNED, SOME, record
from tests.oracle.toys import random_graph, toy_cluster

VOID = {"meta", "link", "br", "img", "hr", "input", "wbr"}


class Balanced(HTMLParser):
    """Checks that every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder, and a plan of as many ops and devices as a test asks for, else few: a chart of many is slow."""
    return made(tmp_path, monkeypatch, *getattr(request, "param", (20, 1)))


class Reported(NamedTuple):
    """A run, and its report."""

    run: Path
    page: str


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    """For tests that only read."""
    with pytest.MonkeyPatch.context() as patch:
        run = made(tmp_path_factory.mktemp("reported"), patch, 200, 8)
        yield Reported(run, report(run))


def made(parent: Path, patch: pytest.MonkeyPatch, ops: int, devices: int) -> Path:
    """A run folder with everything in it, and a plan of a graph of `ops` for these devices."""
    folder = parent / "demo"
    (folder / "finetune").mkdir(parents=True)
    (folder / "config.toml").write_text('placer = "gdp"\n')
    (folder / "command.txt").write_text("placelab train gdp --seed 5\n")
    meta = {"placer": "gdp", "seed": 5, "simulations": 32000, "versions": {"torch": "2.13.0"}}
    (folder / "meta.json").write_text(json.dumps(meta))
    lines = [{"update": i, "simulations": 32 * i, "step_over_bound": 2 - i / 1000, "fitting": 1.0} for i in range(1000)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_document(EvaluationFile(notes=Notes(learned=LEARNED), records=SOME), folder / "evaluation.json")
    tuned = f"{LEARNED}+finetuned"
    records = (*SOME[:3], record("small@two", tuned, 1.5, simulations=500))
    content = EvaluationFile(notes=Notes(learned=tuned, before=LEARNED, remarks=("A remark.",)), records=records)
    write_document(content, folder / "finetune" / "evaluation.json")
    cut_off = '{"simulations": 1, "best_seconds": 2.0}\n{"simulations": 17, "best_sec'
    (folder / "finetune" / "metrics.jsonl").write_text(cut_off)
    problem = Problem(random_graph(ops, seed=0), toy_cluster(devices, memory=1e9))
    placement = np.random.default_rng(0).integers(0, devices, problem.graph.num_units)
    result = PlacerResult.of_units(problem, placement, "random", seed=0)
    save_plan(result, problem, Simulator(problem).run(placement), folder / "best.plan.json")
    spec = ProblemFile(graph="random4000", groups=None, cluster="toy8", optimizer="adam")
    write_document(spec, folder / "best.problem.json")
    patch.setattr("evaluation.records.run_files.load_graph", lambda _, *, groups: problem.graph)
    patch.setattr("evaluation.records.run_files.load_cluster", lambda _: problem.cluster)
    return folder


def report(run: Path) -> str:
    path = write_report(run)
    assert path == run / "report.html"
    page = path.read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # which draw the charts


def text(page: str) -> str:
    page = page.replace("<wbr>", "")
    return " ".join(re.sub(r"<[^>]*>", " ", re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL)).split())


def test_the_report_shows_the_whole_run(reported: Reported) -> None:
    said = text(reported.page)
    assert "placelab train gdp --seed 5" in said
    assert "32,000" in said
    assert "torch 2.13.0" in said
    assert "In the first tenth of the training a sampled placement took 1.95 times the lower bound" in said
    assert "gdp is the fastest of 3 placers on 1 of 2 problems" in said
    assert "fine-tuning with 500 simulations brings the step from 2.00 s to 1.50 s: 25% less time than before" in said
    assert "A remark." in said
    assert "The busiest link" in said
    assert "With 2% of noise on every op and transfer it takes" in said
    assert "Cost model:" in said
    assert said.index("as fast as the fastest device alone") < said.index("In the first tenth"), "asked first"
    assert said.index("as fast as the best rule") < said.index("In the first tenth")


def test_what_is_asked_first_is_what_the_timeline_says(reported: Reported) -> None:
    run, said = reported.run, text(reported.page)
    problem = load_problem(run / "best.problem.json")
    timeline = simulate(problem, load_plan(run / "best.plan.json", problem).plan)
    alone = min(simulate(problem, Plan.of([device] * len(problem.graph))).step_seconds for device in (0, 7))
    assert f"{alone / timeline.step_seconds:.2f} times as fast as the fastest device alone" in said
    taken = np.where(problem.graph.phase == Phase.FORWARD, timeline.finish - timeline.start, 0.0)
    forward = np.bincount(timeline.placement, taken, len(problem.cluster)) / timeline.step_seconds
    for device in np.flatnonzero(forward).tolist():
        assert f"gpu:{device} forward {forward[device]:.1%}" in said, "the bar of the device"
    assert ("It does not fit:" in said) == (not timeline.fits)


def test_no_cell_of_a_table_is_lost_and_problems_are_folded(reported: Reported) -> None:
    run, page = reported
    comparison = Comparison(load_evaluation(run / "evaluation.json").records)
    outside, folded = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL), page
    for sheet, where in ((placer_sheet(comparison, (LEARNED,)), outside), (problem_sheet(comparison), folded)):
        for cell in (cell for row in (sheet.heads, *sheet.rows) for cell in row):
            assert str(escape(cell)) in where.replace("<wbr>", "")
    assert "lower bound</th>" not in outside, "a row per problem only on demand"
    assert page.count("<circle") == sum(len(row) for row in comparison.over_best) - 1, "a dot per plan that fits"


def test_the_logs_of_tensorboard_are_named_by_their_command(run: Path, reported: Reported) -> None:
    assert "tensorboard --logdir" not in reported.page
    (run / "tensorboard").mkdir()
    assert f"tensorboard --logdir {run / 'tensorboard'}" in text(report(run))


def test_validation_says_which_weights_were_kept(run: Path) -> None:
    lines = [{"update": 100 * i, "step_over_bound": 2 - i / 10, "fitting": 0.5, "kept": i < 3} for i in range(1, 5)]
    (run / "validation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = text(report(run))
    assert (
        "Of 4 validated weights those of update 200 are the best: their plans take 1.80 times the lower bound" in said
    )


@pytest.mark.parametrize("run", [(4000, 8)], indirect=True)
def test_the_report_is_one_small_file(run: Path) -> None:
    page = report(run)
    assert len(page.encode()) < 2e6
    assert (run / "report.html").stat().st_size < 5e6
    assert not re.findall(r"<(?:link|img|iframe)\b", page)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page)
    assert not re.findall(r"url\((?!#)", page)


def test_equal_runs_give_equal_reports(reported: Reported) -> None:
    assert report(reported.run) == reported.page


def test_a_folder_that_is_no_run_gets_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no run of `placelab train`"):
        report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text("{}")
    said = text(report(tmp_path))
    assert "no training metrics" in said
    assert "Not evaluated yet" in said
    assert "Not fine-tuned yet" in said
    assert "No plan was kept" in said
    assert "command.txt is missing" in said
    assert "times as fast" not in said


def test_names_are_shown_as_they_are(run: Path) -> None:
    records = (record("<b>@two", LEARNED, 1.0), record("<b>@two", "a&b", 2.0))
    write_document(EvaluationFile(notes=Notes(learned=LEARNED), records=records), run / "evaluation.json")
    page = report(run)
    assert "<b>" not in page
    assert "&lt;b&gt;@two" in page
    assert "a&amp;b" in page


def test_a_comparison_without_a_learned_placer_is_still_shown(run: Path) -> None:
    write_document(EvaluationFile(records=SOME[1:3]), run / "evaluation.json")
    said = text(report(run))
    assert "annealing" in said
    assert "is the fastest of" not in said


def test_a_plan_that_no_longer_fits_its_graph_is_no_reason_to_fail(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluation.records.run_files.load_graph", lambda _, *, groups: random_graph(3, seed=1))
    assert "The plan cannot be drawn: " in text(report(run))


def test_an_evaluation_without_records_is_said_to_be_empty(run: Path) -> None:
    for path in (run / "evaluation.json", run / "finetune" / "evaluation.json"):
        write_document(EvaluationFile(records=()), path)
    assert "The evaluation holds no records" in text(report(run))


def test_broken_files_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run folder .*nowhere does not exist"):
        write_report(tmp_path / "nowhere")
    (run / "metrics.jsonl").write_text('{"update": 1}\n{"upd\n{"update": 3}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl:2: "):
        write_report(run)
    (run / "metrics.jsonl").unlink()
    (run / "meta.json").write_text("{")
    with pytest.raises(InputError, match=r"meta\.json: "):
        write_report(run)
