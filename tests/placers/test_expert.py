"""Splits that somebody wrote down."""

import json
from pathlib import Path

import pytest

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.expert import Expert
from tests.oracle.toys import toy_cluster, toy_graph

PROBLEM = Problem(toy_graph([1, 1, 1], [(0, 1), (1, 2)]), toy_cluster(2))
NAMES = PROBLEM.graph.names
DEVICES = [device.name for device in PROBLEM.cluster.devices]


def written(path: Path, content: object) -> Expert:
    (path / "split.json").write_text(json.dumps(content))
    built: Expert = by_name.build("placers", f"expert:{path / 'split.json'}")
    return built


def test_patterns_name_the_ops_of_each_device(tmp_path: Path) -> None:
    expert = written(tmp_path, {DEVICES[1]: [NAMES[0]], DEVICES[0]: ["*"]})
    assert expert.place(PROBLEM).plan.placement.tolist() == [1, 0, 0]
    assert expert.name == f"expert:{tmp_path / 'split.json'}"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"gpu:9": ["*"]}, "unknown device 'gpu:9'"),
        ({DEVICES[0]: ["nothing*"]}, "no op of .* is named like 'nothing"),
        ({DEVICES[0]: [NAMES[0]]}, "no device for op .* add a last pattern"),
        ({DEVICES[0]: "all"}, "expected a list of patterns"),
        ({"fpgas": [{"nodes": [99]}]}, "has no node 99"),
        ({"fpgas": [{"nodes": ["x"]}]}, "Expected `int`"),
        ({"fpgas": [], "cpus": [{"nodes": [1]}]}, "1 CPUs for a cluster with 0"),
    ],
)
def test_a_split_of_another_problem_is_refused(tmp_path: Path, content: object, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"split\.json: .*{sentence}"):
        written(tmp_path, content).place(PROBLEM)


def test_a_file_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'expert' needs its knob 'split': expert:SPLIT"):
        by_name.build("placers", "expert")
    with pytest.raises(InputError, match="does not exist; write one"):
        Expert(str(tmp_path / "none.json")).place(PROBLEM)


def test_specs_are_told_apart_from_knobs() -> None:
    assert by_name.specs("metis:seeds=2,repair=no,heft,expert:a/b.json") == [
        "metis:seeds=2,repair=no", "heft", "expert:a/b.json",
    ]  # fmt: skip
