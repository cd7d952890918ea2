"""Policies that earlier versions of placelab came with are loaded, and place as they did.

Each is a folder in `tests/fixtures/released_policies`, with greedy plans that it made at that time for problems of a
benchmark: `{problem: {"step_seconds": seconds, "devices": (units,) device of each}}`.
"""

import json
from pathlib import Path

import pytest

from envs.simulation.simulator import simulate
from evaluation.benchmark.problem_file import FOLDER as BENCH_1
from evaluation.benchmark.problem_file import Benchmark
from evaluation.records.provenance import WEIGHTS
from placers import default
from placers.learned.lookup import placer_of
from training.runs.run_folder import RunFolder

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/released_policies"
ORDERS = {
    "2026-11-22": "fifo", "2026-11-26-orders": "longest_path", "2026-11-26-random-problems": "longest_path",
    "2026-11-28-world": "longest_path",
}  # fmt: skip
PLANS = {policy: json.loads((FOLDER / policy / "plans.json").read_text()) for policy in ORDERS}
BENCHMARKS = BENCH_1, BENCH_1.with_name("placelab-bench-2")


@pytest.mark.parametrize("name", sorted({name for plans in PLANS.values() for name in plans}))
def test_it_places_as_it_did(name: str) -> None:
    benchmarks = map(Benchmark.load, BENCHMARKS)
    problem = next(
        each.problem(each.named(name)) for each in benchmarks if name in {p.name for p in each.index.problems}
    )
    for policy, plans in PLANS.items():
        if then := plans.get(name):
            result = placer_of(FOLDER / policy, samples=1).place(problem, budget=0)
            assert [result.plan.devices[op] for op in problem.units.first_op] == [(each,) for each in then["devices"]]
            assert simulate(problem, result.plan).step_seconds == pytest.approx(then["step_seconds"], rel=1e-9), policy


def test_its_recipe_is_read_with_the_order_that_it_was_trained_for() -> None:
    assert {folder.name: RunFolder(folder).problems.order for folder in FOLDER.iterdir()} == ORDERS


@pytest.mark.parametrize("released", [default.RELEASED, default.OF_PROGRAMS], ids=lambda folder: folder.name)
def test_what_comes_with_placelab_is_kept_for_later_versions(released: Path) -> None:
    kept = [(folder / WEIGHTS).read_bytes() for folder in FOLDER.iterdir()]
    assert (released / WEIGHTS).read_bytes() in kept, f"add {released}, and its plans of three problems, to {FOLDER}"
