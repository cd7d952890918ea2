"""A workload that lists its own devices: no flag is ignored, and nothing takes no time."""

import json
from pathlib import Path

import pytest

import placelab
from graphs.foundation.errors import InputError


@pytest.fixture
def workload(tmp_path: Path) -> str:
    """A chain of eight nodes, half of them backward, on two accelerators and a CPU."""
    nodes = [
        {
            "id": i, "name": f"node{i}", "supportedOnFpga": 1, "cpuLatency": 10.0, "fpgaLatency": 1.0,
            "isBackwardNode": int(i > 3), "size": 100.0, "colorClass": min(i, 7 - i),
        }
        for i in range(8)
    ]  # fmt: skip
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(7)]
    path = tmp_path / "chain.json"
    path.write_text(json.dumps({"maxSizePerFPGA": 400, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}))
    return str(path)


def test_it_is_placed_on_its_own_devices(workload: str) -> None:
    placed = placelab.place(workload, placer="annealing", budget=20)
    assert len(placed.problem.cluster) == 3
    assert placed.problem.graph.num_units == 4
    assert placed.timeline.step_seconds > 0
    assert placed.record.cost_model == "recorded"


def test_groups_are_made_if_they_are_asked_for(workload: str) -> None:
    assert placelab.place(workload, placer="heft", groups=2).problem.graph.num_units == 2
    assert placelab.place(workload, cluster="p100x2", placer="heft").problem.graph.num_units == 4


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"optimizer": "nonsense"}, "unknown optimizer 'nonsense'"),
        ({"optimizer": "adam"}, "a workload says itself what its ops hold"),
        ({"cost_model": "nonsense"}, "unknown cost model 'nonsense'"),
        ({"cost_model": "roofline"}, "all ops of .* take 0 s by cost model 'roofline'"),
    ],
)
def test_what_does_not_fit_a_workload_is_refused(keywords: dict[str, str], sentence: str, workload: str) -> None:
    with pytest.raises(InputError, match=sentence):
        placelab.place(workload, placer="heft", **keywords)  # type: ignore[arg-type]


def test_its_times_by_another_road_are_the_same(workload: str) -> None:
    own = placelab.place(workload, placer="heft")
    named = placelab.place(workload, placer="heft", cost_model="recorded", optimizer="none")
    assert own.timeline.step_seconds == named.timeline.step_seconds


def test_searches_make_the_objective_small(workload: str) -> None:
    compared = placelab.compare(
        workload, placers="max_load_dp,annealing,genetic,hill_climbing,random", objective="max-load", budget=60
    )
    assert not compared.failures
    best = min(record.objective_seconds for record in compared.records)
    found = {record.placer: record.objective_seconds for record in compared.records}
    assert found["annealing"] <= found["max_load_dp"] * (1 + 1e-9)
    assert best > 0
