"""Streams of changes: the same for equal seeds, each change a problem to be placed, and what rivals find on them."""

import math
from pathlib import Path

import numpy as np
import pytest

from envs.costs.costs import costs_of, timed
from envs.objectives.replacement import replacing, running_of
from envs.plans.plan import Plan
from envs.replacement.running import LEFT, Running
from evaluation.benchmark import streams
from evaluation.benchmark.__main__ import app
from evaluation.benchmark.stream_results import StreamResults
from evaluation.benchmark.streams import Change, changes_of, with_devices
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from tests.evaluation.some_records import to_text
from tests.oracle.toys import random_graph, toy_cluster, toy_graph


def changes(seed: int, count: int = 5) -> list[Change]:
    """Of twelve ops on four devices with room for all."""
    problem = timed(Problem(random_graph(12, 1), toy_cluster(4, memory=1e6)))
    return list(changes_of((problem,), np.arange(12) % 4, np.random.default_rng(seed), count))


def test_equal_seeds_are_equal_streams() -> None:
    one, again, other = ([(each.what, each.problem.objective.name) for each in changes(seed)] for seed in (3, 3, 4))
    assert one == again != other


def test_devices_leave_with_all_that_runs_there_and_come_back_empty() -> None:
    devices = 4
    for change in changes(5, 12):
        running, cluster = running_of(change.problem), change.problem.cluster
        assert running is not None
        if change.what.endswith("leaves"):
            devices -= 1
        elif change.what.endswith("comes back"):
            devices += 1
            names = [device.name for device in cluster.devices]
            assert names.index(change.what.split()[0]) not in running.placement
        assert len(cluster) == devices == costs_of(change.problem).op_seconds.shape[1]
        assert (LEFT in running.placement) == change.what.endswith("leaves")


def test_fewer_devices_have_the_links_between_them() -> None:
    cluster = with_devices(toy_cluster(4, shared_out=True), np.array([1, 3]))
    assert [device.name for device in cluster.devices] == ["gpu:1", "gpu:3"]
    assert cluster.channel[0, 1] != cluster.channel[1, 0]


def test_rivals_are_measured_over_a_reference() -> None:
    results = StreamResults.none(5, 1, 0.01, 0.05)
    change = changes(5, 1)[0]
    results.add(change)
    assert len(results.reference.moved_bytes) == 1
    over = {name: found.over_reference[0] or math.inf for name, found in results.of_rivals.items()}
    for name, found in results.of_rivals.items():
        assert over[name] > 0.9, name
        assert found.milliseconds[0] > 0
    assert over["hill climbing"] <= over["keep all"]
    assert results.table().row_count == len(results.of_rivals)


def test_results_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    none, path = StreamResults.none(5, 2, 0.05, 10.0), tmp_path / "streams.json"
    assert none.continued(path) is none, "nothing is kept yet"
    for results in (none.reference, *none.of_rivals.values()):
        results.over_reference += [1.25, None]  # the second does not fit
        results.moved_bytes += [2.0, 6.0]
        results.milliseconds += [40.0, 60.0]
    none.save(path)
    kept = StreamResults.none(5, 2, 0.05, 10.0).continued(path)
    assert kept == none
    assert kept.streams == 1
    assert "| hill climbing (1 do not fit) | 1.250 | 0 | 1.00 | 50 | 59 |" in kept.text()
    for other in (StreamResults.none(6, 2, 0.05, 10.0), StreamResults.none(5, 2, 0.1, 10.0)):
        with pytest.raises(InputError, match="another seed, other numbers or rivals; choose another --out"):
            other.continued(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="holds no results of streams"):
        none.continued(path)


def test_streams_that_are_done_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[int]()

    def first(kind: str, rng: np.random.Generator) -> tuple[tuple[Problem, ...], Ints]:
        drawn.append(int(rng.integers(1 << 30)))
        return (timed(Problem(random_graph(12, 1), toy_cluster(4, memory=1e6))),), np.arange(12) % 4

    monkeypatch.setattr(streams, "_first", first)
    for done in (0, 1):
        list(streams.streams(3, seed=1, changes=1, done=done))
    assert drawn[3:] == drawn[1:3]


def test_a_plan_says_what_is_moved_to_get_there() -> None:
    problem = Problem(toy_graph([1, 1], [], weights=[8, 4], weight_uses=[(0, 0), (1, 1)]), toy_cluster(2), "none")
    running = Running(np.array([0, 1]), steps=4)
    placed = SimulatedPlan.of(replacing(problem, running), Plan.of([1, 1]))
    said = to_text(placed._shown())
    assert "is 4.00 s." in said  # a step of 2 s, and a fourth of the move
    assert "To move there takes 8.00 s once, for 8 B." in said


@pytest.mark.parametrize(
    "given",
    ["--count 0", "--changes=-1", "--milliseconds nan", "--milliseconds 0", "--reference-seconds inf", "--seed=-1"],
)
def test_amounts_that_are_none_are_refused_before_anything_is_captured(given: str) -> None:
    with pytest.raises(InputError, match=given.replace("=", " ").split()[0]):
        app(["streams", *given.split()], exit_on_error=False, print_error=False)


def test_a_family_that_never_gains_by_several_devices_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    problem = timed(Problem(random_graph(12, 1), toy_cluster(4, memory=1e6)))

    def first(kind: str, rng: np.random.Generator) -> tuple[tuple[Problem, ...], Ints] | None:
        del rng
        asked.append(kind)
        return None if kind == streams.FAMILIES[0] else ((problem,), np.arange(12) % 4)

    monkeypatch.setattr(streams, "_first", first)
    assert [len(stream) for stream in streams.streams(2, changes=1)] == [1, 1]
    assert asked == [*streams.FAMILIES[:2], streams.KINDS[0]]
