"""Every published profile and workload, placed as a user would: all takes time, nothing collapses, what fits fits.

The outside checks, repeated with the files that are at hand: profiles of PipeDream and DAPPLE, workloads of "Efficient
Algorithms for Device Placement of DNN Graph Operators".
"""

from pathlib import Path

import numpy as np
import pytest

import placelab
from evaluation.commands.problems import problem_of
from graphs.files.load import load_graph
from graphs.formats.msr import load_workload

DATA = Path(__file__).parents[3] / "shared" / "data"
FILES = [
    path.relative_to(DATA).as_posix()
    for pattern in ("pipedream/*.txt", "dapple/*.txt", "msr/*/*.json")
    for path in sorted(DATA.glob(pattern))
    if path.name != "LICENSE.txt" and path.parent.name != "experts"
]
WORKLOADS = [file for file in FILES if file.startswith("msr")]
PLACERS = ("heft", "metis", "human_expert", "single_device", "annealing:policy=default")  # the last as in `place`
GROUPS = 64


@pytest.fixture(autouse=True)
def _at_hand(request: pytest.FixtureRequest) -> None:
    if "file" in request.fixturenames and not request.getfixturevalue("file"):
        pytest.skip("the published files are not at hand")


@pytest.mark.parametrize("file", FILES or [""])
def test_five_placers_with_default_flags(file: str) -> None:
    comparison = placelab.compare(str(DATA / file), clusters="p100x4", placers=PLACERS)
    assert not comparison.failures
    assert len(comparison.records) == len(PLACERS)
    assert {record.cost_model for record in comparison.records} == {"recorded"}
    for record in comparison.records:
        assert record.step_seconds > 0
        assert record.step_seconds >= record.lower_bound_seconds * (1 - 1e-9) > 0
    assert np.isfinite(comparison.over_best[0][comparison.fits[0]]).all()


@pytest.mark.parametrize("file", FILES or [""])
def test_groups_asked_for_are_groups_made(file: str) -> None:
    whole = load_graph(str(DATA / file))
    problem = problem_of(str(DATA / file), "p100x4", groups=GROUPS)
    assert problem.graph.num_units == min(GROUPS, whole.num_units)


@pytest.mark.parametrize("file", WORKLOADS or [""])
@pytest.mark.parametrize("placer", PLACERS)
def test_a_workload_fits_as_its_own_rule_says(file: str, placer: str) -> None:
    workload = load_workload(DATA / file)
    problem = problem_of(str(DATA / file))
    placed = placelab.place(str(DATA / file), placer=placer, budget=16)
    sizes = np.array([node.size for node in workload.nodes])
    held = np.bincount(placed.plan.placement, weights=sizes, minlength=len(problem.cluster))
    by_rule = (held[~problem.cluster.is_cpu] <= workload.maxSizePerFPGA).all()
    assert placed.timeline.fits == by_rule
    assert placed.timeline.peak_bytes == pytest.approx(held)
    assert placed.timeline.step_seconds > 0
