"""Programs are scored by what their plans are worth, whatever they do to their process."""

from pathlib import Path

import pytest

from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.program_score import Limits, ProgramScore, score_program
from graphs.foundation.errors import InputError
from tests.evaluation.benchmark.tiny import FOLDER

MOVE = """
def move(problem, placement, generator, progress):
    assert 0.0 <= progress <= 1.0
    placement[generator.integers(len(placement))] = generator.integers(len(problem.cluster))
    return placement
"""
FAILS = """
import os, time

class Placer:
    def place(self, problem, *, seed=0, budget=1):
        if "v100" in problem.cluster.name:
            os._exit(3)
        SLOW

build = Placer
"""


def scored(folder: Path, text: str, **limits: float) -> ProgramScore:
    program = folder / "program.py"
    program.write_text(text)
    budget, seconds = int(limits.get("budget", 100)), limits.get("seconds", 60.0)
    return score_program(program, Benchmark.load(FOLDER), "ops", limits=Limits(budget, seconds))


def test_a_move_is_scored_by_what_annealing_finds_with_it(tmp_path: Path) -> None:
    found = scored(tmp_path, MOVE)
    assert len(found.problems) == 2
    assert 0.5 < found.score == pytest.approx(sum(each.score for each in found.problems) / 2)
    assert all("ms a step" in each.feedback and "is busy for" in each.feedback for each in found.problems)
    assert str(found).startswith(f"score {found.score:.4f}\n")


@pytest.mark.parametrize(
    ("slow", "sentence"),
    [
        ("while True: pass", "it took more than 0.5 seconds of the processor"),
        ("time.sleep(60)", "it took more than 5 seconds"),
    ],
)
def test_a_program_that_ends_its_process_or_takes_too_long_fails_on_that_problem_alone(
    slow: str, sentence: str, tmp_path: Path
) -> None:
    found = scored(tmp_path, FAILS.replace("SLOW", slow), seconds=0.5)
    late, ends = sorted(found.problems, key=lambda each: "v100" in each.problem)
    assert (late.score, ends.score) == (0.0, 0.0)
    assert late.feedback == f"no plan: {sentence}"
    assert "ended with exit code 3" in ends.feedback


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def place(): pass", "expected a placer, `build`, or a move"),
        ("def move(:", "is no program"),
        ("def build(): return ()", "expected a placer, with a method `place`, got tuple"),
        (None, "there is no file"),
    ],
)
def test_what_is_no_program_is_refused_at_once(text: str | None, sentence: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    if text is not None:
        program.write_text(text)
    with pytest.raises(InputError, match=sentence):
        score_program(program, Benchmark.load(FOLDER), "ops", limits=Limits())
