"""The repository's best known plans and submissions are worth what is said of them."""

import shutil
from pathlib import Path

import msgspec

from evaluation.benchmark.best_known import best_known, update_best, verify_best
from evaluation.benchmark.leaderboard import SUBMISSIONS, load_submissions, write_leaderboard
from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.submission import SubmissionFolder, bench
from evaluation.benchmark.verification import check_suite, row_of
from graphs.foundation import by_name
from tests.evaluation.benchmark import tiny

ROOT = Path(__file__).resolve().parents[3]
BENCHMARK = Benchmark.load()
SAMPLE = ("inception_v3:inception-v3@p100:devices=2", "transformer_xl:transformer-xl-2@p100:devices=2")


def test_a_sample_of_the_best_known_plans_is_timed_again() -> None:
    assert verify_best(BENCHMARK, [BENCHMARK.named(name) for name in SAMPLE]) == len(SAMPLE)


def test_every_best_known_plan_fits_says_who_found_it_and_is_no_faster_than_its_bound() -> None:
    best = best_known(BENCHMARK)
    assert len(best) >= 37
    for name, entry in best.items():
        assert BENCHMARK.named(name).name == name
        assert entry.record.fits
        assert entry.record.placer
        assert entry.made is not msgspec.UNSET
        assert entry.record.step_seconds >= entry.record.lower_bound_seconds * (1 - 1e-9)


def test_the_page_has_the_rows_of_the_submissions() -> None:
    page, best = (ROOT / "docs/leaderboard.md").read_text(), best_known(BENCHMARK)
    for submitted in load_submissions(SUBMISSIONS):
        check_suite(submitted, BENCHMARK)
        row = row_of(submitted, best)
        assert f"| {row.title} | {row.over_best.value:.2f} [" in page
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
    assert "random" in (tmp_path / "plot.svg").read_text()
