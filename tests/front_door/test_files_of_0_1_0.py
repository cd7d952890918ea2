"""What the released version 0.1.0 wrote is read (`tests/fixtures/written_by_0.1.0`)."""

import json
from pathlib import Path

import pytest

import placelab
from training.recipe import load_recipe

WRITTEN = Path(__file__).resolve().parents[1] / "fixtures/written_by_0.1.0"


def test_a_plan_runs_as_it_was_predicted() -> None:
    plan = WRITTEN / "small.plan.json"
    graph, cluster = WRITTEN / "small.graph.json.gz", WRITTEN / "small.cluster.toml"
    placed = placelab.simulate(graph, plan, cluster=cluster, cost_model="roofline")
    predicted = json.loads(plan.read_text())["predicted"]
    assert placed.timeline.step_seconds == pytest.approx(predicted["step_seconds"], rel=1e-12)
    peaks = zip(placed.problem.cluster.devices, placed.timeline.peak_bytes.tolist(), strict=True)
    assert all(peak <= predicted["peak_bytes"][device.name] for device, peak in peaks)  # which had gradients twice


def test_a_recipe_is_read() -> None:
    recipe = load_recipe(str(WRITTEN / "run/config.toml"))
    assert (recipe.placer, recipe.problems.families, recipe.ppo.updates) == ("sequential", ("layered",), 2)


def test_a_policy_places() -> None:
    graph, cluster = WRITTEN / "small.graph.json.gz", WRITTEN / "small.cluster.toml"
    placed = placelab.place(graph, cluster=cluster, placer=WRITTEN / "run", budget=2)
    assert placed.timeline.fits
    assert placed.result.simulations == 2
