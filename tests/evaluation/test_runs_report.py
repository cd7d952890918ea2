"""Runs compared on one page: differing keys alone, common problems alone, and no cell lost."""

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from markupsafe import escape

import placelab
from evaluation.records.run_files import EvaluationFile, Notes
from evaluation.reporting.joined_runs import JoinedRuns
from evaluation.reporting.run_data import RunData
from evaluation.reporting.runs_report import differences, write_runs_report
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from tests.evaluation.some_records import record
from tests.evaluation.test_report import Balanced, text

PROBLEMS = ("rnnlm:layers=1@two", "rnnlm:layers=2@two", "vit@two")


def run_of(folder: Path, seed: int, seconds: tuple[float, ...], *, updates: int = 40, budget: int = 16) -> Path:
    """A run whose policy takes so long on the problems, and its rivals 2 s; one second less is the lower bound."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'placer = "gdp"\n[ppo]\nupdates = {updates}\nepochs = 3\n')
    (folder / "meta.json").write_text(json.dumps({"placer": "gdp", "seed": seed, "versions": {"torch": "2.13.0"}}))
    (folder / "command.txt").write_text(f"placelab train gdp --seed {seed}\n")
    lines = [{"update": i, "simulations": 32 * i, "step_over_bound": 3 - seed / 10} for i in range(updates)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    learned = f"gdp:checkpoint={folder}"
    own = [record(problem, learned, each, simulations=budget) for problem, each in zip(PROBLEMS, seconds, strict=False)]
    own += [msgspec.structs.replace(each, placer=f"{learned},samples=1") for each in own]
    rivals = [record(problem, name, 2.0) for problem in PROBLEMS[: len(seconds)] for name in ("metis", "random")]
    write_document(EvaluationFile(notes=Notes(learned=learned), records=(*own, *rivals)), folder / "evaluation.json")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [run_of(tmp_path / "a", 0, (1.0, 1.5, 3.0)), run_of(tmp_path / "b", 1, (2.0, 1.8, 2.5), updates=50)]


def page_of(runs: list[Path]) -> str:
    page = write_runs_report(runs).read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    page = re.sub(r"<p [^>]* hidden>.*?</p>", "", page)  # shown where a table is too wide
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL).replace("<wbr>", "")


def test_of_few_graphs_no_run_is_said_to_be_better_on_them(runs: list[Path]) -> None:
    said = text(page_of(runs))
    assert "Fewer than 5 graphs that they never saw are too few to say which is better there." in said
    assert "never saw, 1" not in said
    assert "It gains most" not in said


def test_the_page_says_in_what_they_differ_and_at_what_each_is_best(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluation.reporting.runs_report.FEWEST_PROBLEMS", 3)
    page = page_of(runs)
    said = text(page)
    assert "seed 0 1 ppo.updates 40 50 Keys that are the same" in said, "differing keys alone, each run's value"
    assert "ppo.epochs" not in said
    assert "a is best at: " in said
    assert "the family rnnlm. It gains most on rnnlm:layers=1@two: 50% less time than the best other run." in said
    assert "the family vit. It gains most on vit@two: 17% less time than the best other run." in said
    assert page.count('data-models="run0"') == page.count('data-models="run1"') == 1, "one chart for both"
    assert "placelab train gdp --seed 1" in said
    assert said.index("At a glance") < said.index("In what they differ") < said.index("Learning")


def test_three_seeds_of_a_recipe_are_one_curve_with_a_band(runs: list[Path], tmp_path: Path) -> None:
    seeds = [run_of(tmp_path / f"c-seed{seed}", seed, (1.0,)) for seed in (3, 4, 5)]
    page = page_of([*seeds, runs[1]])
    assert "c-seed3, c-seed4, c-seed5: mean" in page
    assert "a band from the least to the largest" in page
    assert page.count('data-models="run0"') == page.count('data-models="run1"') == 1
    assert 'data-models="run2"' not in page
    two = page_of([*seeds[:2], runs[1]])
    assert ": mean" not in two, "of too few seeds each is drawn"
    assert 'data-models="run2"' in two


def test_runs_that_only_differ_in_nothing_are_said_to_be_the_same(tmp_path: Path) -> None:
    same = [run_of(tmp_path / name, 3, (1.0,)) for name in "ab"]
    assert differences([RunData.of(run) for run in same]) == []
    said = text(page_of(same))
    assert "Recipes, seeds and versions are the same." in said
    assert "a is best at none of these numbers." in said
    assert "* the best of these runs" not in said


def test_no_cell_of_the_evaluation_is_lost(runs: list[Path]) -> None:
    joined = JoinedRuns.of([RunData.of(run) for run in runs], ["a", "b"])
    assert joined is not None
    page = page_of(runs)
    for sheet in (joined.problem_sheet(), joined.family_sheet()):
        for cell in (cell for row in (sheet.heads, *sheet.rows) for cell in row):
            assert str(escape(cell)) in page
    assert joined.problem_sheet().rows[0] == ("rnnlm:layers=1@two", "1.00 s *", "2.00 s", "2.00 s (metis)", "1.00 s")
    assert joined.wins == (2, 1)
    np.testing.assert_allclose(joined.means, [(3.0 / 2.5) ** (1 / 3), (2.0 * 1.8 / 1.5) ** (1 / 3)])
    np.testing.assert_allclose(joined.speedups, [(8 / 4.5) ** (1 / 3), (8 / 9) ** (1 / 3)])
    assert {each.placer for each in joined.comparison.records} == {"a", "b", "metis", "random"}


def test_only_common_problems_count_and_unlike_budgets_are_said(runs: list[Path], tmp_path: Path) -> None:
    short = run_of(tmp_path / "c", 2, (1.0, 1.0), budget=64)
    said = text(page_of([*runs, short]))
    assert "2 problems that all evaluated runs have. 1 more, which only some of them have, are left out." in said
    assert "unlike numbers of simulations, which favours those with more: a 16, b 16, c 64." in said
    assert "vit@two" not in said


def test_what_a_run_lacks_is_left_out(runs: list[Path]) -> None:
    (runs[1] / "evaluation.json").unlink()
    (runs[1] / "metrics.jsonl").unlink()
    (runs[1] / "meta.json").unlink()
    said = text(page_of(runs))
    assert "No two of the runs are evaluated on the same graphs" in said
    assert "seed 0 - ppo.updates 40 50 version of torch 2.13.0 -" in said


def test_many_problems_are_folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(f"rnnlm:layers={layers}@two" for layers in range(1, 15))
    monkeypatch.setattr("tests.evaluation.test_runs_report.PROBLEMS", many)
    page = page_of([run_of(tmp_path / name, seed, (1.0 + seed,) * 14) for seed, name in enumerate("ab")])
    outside = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert ">rnnlm:layers=14@two</th>" in page
    assert ">rnnlm:layers=14@two</th>" not in outside


def test_the_page_is_beside_the_runs_and_links_to_their_reports(runs: list[Path], tmp_path: Path) -> None:
    (runs[0] / "report.html").write_text("")
    (runs[1] / "tensorboard").mkdir()
    assert placelab.report(runs) == tmp_path / "comparison.html"
    page = page_of(runs)
    assert '<a href="a/report.html">' in page
    assert f"placelab report {runs[1]}" in page
    assert f"tensorboard --logdir_spec b:{runs[1] / 'tensorboard'}" in text(page)
    elsewhere = tmp_path / "a" / "both.html"
    assert placelab.report(runs, out=elsewhere) == elsewhere
    assert '<a href="report.html">' in elsewhere.read_text()
    assert placelab.report(runs[0], out=elsewhere) == elsewhere


def test_folders_of_the_same_name_are_called_by_their_paths(tmp_path: Path) -> None:
    page = page_of([run_of(tmp_path / name / "seed0", 0, (1.0,)) for name in ("one", "two")])
    assert "one/seed0 · two/seed0" in page


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is given twice; name each run once"):
        placelab.report([runs[0], runs[1], runs[0] / ".." / "a"])
    with pytest.raises(InputError, match="holds no run of `placelab train`"):
        placelab.report([runs[0], tmp_path])
    with pytest.raises(InputError, match=r"its name must end in \.html"):
        placelab.report(runs, out=tmp_path / "x.txt")
    with pytest.raises(InputError, match="report needs a run folder"):
        placelab.report([])
