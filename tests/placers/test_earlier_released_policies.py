"""Policies that earlier versions of placelab came with are loaded, and place as they did.

Each is a folder in `tests/fixtures/released_policies`, with the plans of its submission to the leaderboard of that
time: `{problem of placelab-bench-1: {"step_seconds": seconds, "devices": (units,) device of each}}`.
"""

import json
from pathlib import Path

import pytest

from envs.simulation.simulator import simulate
from evaluation.benchmark.problem_file import Benchmark
from evaluation.records.provenance import WEIGHTS
from placers import default
from placers.learned.lookup import placer_of
from training.runs.run_folder import RunFolder

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/released_policies"
ORDERS = {"2026-11-22": "fifo", "2026-11-26-orders": "longest_path", "2026-11-26-random-problems": "longest_path"}
PROBLEMS = sorted(json.loads((FOLDER / "2026-11-22/plans.json").read_text()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_places_as_it_did(name: str) -> None:
    benchmark = Benchmark.load()
    problem = benchmark.problem(benchmark.named(name))
    for policy in ORDERS:
        result = placer_of(FOLDER / policy, samples=1).place(problem, budget=0)
        then = json.loads((FOLDER / policy / "plans.json").read_text())[name]
        assert [result.plan.devices[op] for op in problem.units.first_op] == [(each,) for each in then["devices"]]
        assert simulate(problem, result.plan).step_seconds == pytest.approx(then["step_seconds"], rel=1e-9), policy


def test_its_recipe_is_read_with_the_order_that_it_was_trained_for() -> None:
    assert {folder.name: RunFolder(folder).problems.order for folder in FOLDER.iterdir()} == ORDERS


def test_the_one_that_comes_with_placelab_is_kept_for_later_versions() -> None:
    now = (default.RELEASED / WEIGHTS).read_bytes()
    kept = [(folder / WEIGHTS).read_bytes() for folder in FOLDER.iterdir()]
    assert now in kept, f"add placers/released, and its plans of three problems, to {FOLDER}"
