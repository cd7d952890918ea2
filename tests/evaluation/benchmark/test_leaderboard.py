"""The repository's best known plans and submissions are worth what is said of them."""

import csv
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envs.files.plan_file import load_plan
from envs.simulation.simulator import simulate
from evaluation.benchmark.best_known import best_known, update_best, verify_best, write_best
from evaluation.benchmark.leaderboard import load_submissions, sections, write_leaderboard
from evaluation.benchmark.problem_file import FOLDER, Benchmark
from evaluation.benchmark.quality_plot import unbeaten
from evaluation.benchmark.row_table import in_cell
from evaluation.benchmark.submission import SubmissionFolder, bench
from evaluation.benchmark.verification import VerifiedRow, check_entry, check_suite, row_of
from evaluation.records.formatting import interval
from evaluation.records.statistics import estimate
from graphs.foundation import by_name
from tests.evaluation.benchmark import tiny

ROOT = Path(__file__).resolve().parents[3]
BENCHMARK = Benchmark.load()
SECOND = Benchmark.load(FOLDER.with_name("placelab-bench-2"))
SAMPLE = ("inception_v3:inception-v3@p100:devices=2", "transformer_xl:transformer-xl-2@p100:devices=2")


def test_a_sample_of_the_best_known_plans_is_timed_again() -> None:
    assert verify_best(BENCHMARK, [BENCHMARK.named(name) for name in SAMPLE]) == len(SAMPLE)
    assert verify_best(SECOND, SECOND.chosen("tight")) == 8


def test_a_sample_of_the_submitted_plans_is_timed_again() -> None:
    submissions = load_submissions(BENCHMARK.index.name)
    for name in SAMPLE:
        frozen = BENCHMARK.named(name)
        problem = BENCHMARK.problem(frozen)
        given = [(each, entry) for each in submissions for entry in each.entries if entry.record.problem == name]
        assert len(given) >= 12
        for submitted, entry in given:
            check_entry(str(submitted.folder), frozen, problem, entry)


def test_every_best_known_plan_fits_says_who_found_it_and_is_no_faster_than_its_bound() -> None:
    for benchmark in (BENCHMARK, SECOND):
        assert set(best_known(benchmark)) == set(benchmark.by_name), "of every problem"
    for entry in (*best_known(BENCHMARK).values(), *best_known(SECOND).values()):
        assert entry.record.fits
        assert entry.record.placer
        assert entry.made is not msgspec.UNSET
        assert entry.record.step_seconds >= entry.record.lower_bound_seconds * (1 - 1e-9)


@pytest.mark.parametrize(("benchmark", "name"), [(BENCHMARK, "leaderboard"), (SECOND, "leaderboard-2")])
def test_the_page_has_the_rows_of_the_submissions(benchmark: Benchmark, name: str) -> None:
    page, best = (ROOT / f"docs/{name}.md").read_text(), best_known(benchmark)
    for submitted in load_submissions(benchmark.index.name):
        check_suite(submitted, benchmark)
        row = row_of(submitted, best)
        assert f"| {in_cell(row.title)} | {interval(row.over_best)} |" in page
        assert f"{row.fits}/{row.problems}" in page


def test_a_leaderboard_is_made_of_folders(tmp_path: Path) -> None:
    benchmark = Benchmark.load(Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench")))
    made: list[SubmissionFolder] = [
        bench(by_name.build("placers", spec), "ops", tmp_path / spec, budget=budget, problems=tiny.FOLDER, quiet=True)
        for spec, budget in (("random", 4), ("annealing", 40))
    ]
    update_best(benchmark, made)
    write_leaderboard(benchmark, made, tmp_path / "page.md", tmp_path / "plot.svg")
    rows = [
        line for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith(("| random", "| anneal"))
    ]
    assert [line.split(" | ")[0] for line in rows] == ["| annealing", "| random"]
    assert "2 of the 3" in (tmp_path / "page.md").read_text()
    plot = (tmp_path / "plot.svg").read_text()
    assert "annealing" in plot
    assert "simulations per problem" in plot
    assert "$" not in plot, "numbers at the axes are plain text"


def row(title: str, suites: str, simulations: float, ratio: float, fits: int = 2, learns: str = "no") -> VerifiedRow:
    return VerifiedRow(title, title, suites, estimate([np.array([ratio, ratio])]), fits, 2, simulations, 0.0, learns)


def test_rows_of_the_same_suites_are_in_one_table_in_the_order_of_the_benchmark() -> None:
    rows = [
        row("a", "plans", 1, 1.2),
        row("b", "plans,ops", 1, 1.5),
        row("c", "ops,plans", 1, 1.1),
        row("d", "ops,plans", 1, 1.0, fits=1),
        row("e", "all", 1, 1.4),
    ]
    found = sections(Benchmark.load(tiny.FOLDER), rows)
    assert {suites: [each.title for each in some] for suites, some in found.items()} == {
        "ops,plans": ["c", "e", "b", "d"],
        "plans": ["a"],
    }


def test_the_plot_names_rows_that_none_with_as_few_simulations_is_better_than() -> None:
    rows = [row("a", "ops", 0, 1.5), row("b", "ops", 1, 1.7), row("c", "ops", 16, 1.2), row("d", "ops", 99, 1.2)]
    assert [each.title for each in unbeaten([*rows, row("e", "ops", 9, 1.0, fits=1)])] == ["a", "c"]


def test_a_title_does_not_break_the_table() -> None:
    assert in_cell("mine | *best*\n<b>") == r"mine \| \*best\* \<b>"


def test_the_best_known_plans_are_written_as_plan_files_with_a_table(tmp_path: Path) -> None:
    benchmark = Benchmark.load(Path(shutil.copytree(tiny.FOLDER, tmp_path / "bench")))
    made = bench(by_name.build("placers", "heft"), "all", tmp_path / "heft", problems=tiny.FOLDER, quiet=True)
    update_best(benchmark, [made])
    with write_best(benchmark, tmp_path / "plans").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {each["problem"] for each in rows} == set(best_known(benchmark))
    for each in rows:
        problem = benchmark.problem(benchmark.named(each["problem"]))
        plan = load_plan(tmp_path / "plans" / each["plan"], problem)
        assert simulate(problem, plan.plan).step_seconds == pytest.approx(float(each["step_seconds"]), rel=1e-12)
        assert (each["placer"], int(each["simulations"]) >= 0) == ("heft", True)
