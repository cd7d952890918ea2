"""What is said of a profiled model: how far the roofline is from what was measured."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

import placelab
from envs.costs.costs import load_cost_model
from envs.costs.profile_file import MeasuredOp, Profile, ProfiledMachine
from evaluation.reporting.profile_report import ProfileReport
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.evaluation.some_records import to_text

TWO_TOWERS = f"{Path(__file__).parents[1] / 'fixtures' / 'user_module.py'}:two_towers"

# One FLOP/s, one byte/s, a second to launch.
MACHINE = ProfiledMachine(
    name="Abacus", kind="cpu", torch="2", threads=1, flops_per_second=1, bytes_per_second=1, memory_bytes=100,
    launch_seconds=1, autograd_seconds=0,
)  # fmt: skip
GRAPH = OpGraph(
    "g", ("a", "b", "c", "d", "e"), ("mm", "mm", "relu", "slice", "odd"), np.array([3.0, 7, 0, 0, 0]),
    np.array([1.0, 1, 1, 0, 5]), np.ones(5), np.array([[0, 1], [1, 2]]),
)  # fmt: skip


def op(kind: str, flops: float, traffic: float, seconds: float, names: list[str]) -> MeasuredOp:
    return MeasuredOp(
        kind=kind, signature=f"{kind}{flops}", flops=flops, bytes_accessed=traffic, seconds=seconds, spread=0,
        repeats=1, ops={"g": names},
    )  # fmt: skip


@pytest.fixture
def report() -> ProfileReport:
    """`a` and `b` take 8 and 32 s and by the roofline 4 and 8, `c` takes 2 and 2; what `odd` takes is not known."""
    ops = [op("mm", 3, 1, 8.0, ["a"]), op("mm", 7, 1, 32.0, ["b"]), op("relu", 0, 1, 2.0, ["c"])]
    return ProfileReport.of(Profile(date="2020", machine=MACHINE, ops=ops, refused={"odd()": "odd"}), GRAPH)


def test_the_distance_from_the_roofline_by_hand(report: ProfileReport) -> None:
    products, relu = report.kinds
    assert (products.kind, products.ops, products.distinct, products.seconds) == ("mm", 2, 2, 40.0)
    assert products.share == pytest.approx(40 / 42)
    assert products.over_roofline == pytest.approx((8 / 4 * 32 / 8) ** 0.5)
    assert products.efficiency == pytest.approx((3 + 7) / (7 + 31))
    assert (relu.kind, relu.ops, relu.efficiency) == ("relu", 1, 1.0)
    assert relu.over_roofline == pytest.approx(1)
    assert (report.seconds, report.roofline_seconds, report.unknown) == (42.0, 4.0 + 8.0 + 2.0, 1)
    assert report.over_roofline == pytest.approx((2 * 4 * 1) ** (1 / 3))


def test_with_the_efficiencies_of_a_profile_the_roofline_takes_as_long(report: ProfileReport, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    report.save_efficiencies(path)
    one = np.zeros((1, 1))
    problem = Problem(GRAPH, Cluster("one", (MACHINE.device(),), one, one, np.zeros((1, 1), np.int64)))
    seconds = load_cost_model(f"roofline:efficiency={path}").costs(problem).op_seconds[:, 0]
    assert seconds[:2].sum() == pytest.approx(40 - 2)  # launches come on top
    assert seconds[2] == pytest.approx(1)


def test_it_is_shown_and_written(report: ProfileReport) -> None:
    text = to_text(report.__rich__(), width=140)
    assert "Measured on Abacus (cpu, one thread, torch 2)" in text
    assert "All ops one after another take 42.0 s, by the roofline at these speeds 14.0 s" in text
    assert "1 op could not be run alone, such as odd()" in text
    record = json.loads(json.dumps(report.to_json()))
    assert [each["kind"] for each in record["kinds"]] == ["mm", "relu"]
    assert msgspec.convert(record["machine"], ProfiledMachine) == MACHINE


def test_a_model_is_profiled_into_a_file_that_the_cost_model_reads(tmp_path: Path) -> None:
    out, shares = tmp_path / "towers.profile.json", tmp_path / "towers.toml"
    report = placelab.profile(TWO_TOWERS, out=out, repeats=1, device="cpu", efficiencies=shares)
    assert report.unknown == 0
    assert sum(each.share for each in report.kinds) == pytest.approx(1)
    assert all(each.over_roofline > 0 for each in report.kinds)
    assert load_cost_model(f"roofline:efficiency={shares}")
    assert load_cost_model(f"profiled:file={out}")
    with pytest.raises(InputError, match=r"ends in \.toml"):
        placelab.profile(TWO_TOWERS, out=out, repeats=1, efficiencies=tmp_path / "towers.json")
