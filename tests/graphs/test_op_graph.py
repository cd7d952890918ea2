"""Op graphs refuse what is not one, and say which op is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_groups.units import Units
from tests.oracle.toys import toy_graph


def test_a_cycle_is_named() -> None:
    with pytest.raises(InputError, match=r"graph 'toy' is cyclic: .*b -> c -> b.*remove one"):
        toy_graph([1, 1, 1], [(0, 1), (1, 2), (2, 1)])


@pytest.mark.parametrize("key", ["flops", "bytes_accessed", "output_bytes"])
@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, 1e308])
def test_a_senseless_cost_is_named(key: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{key} of 'b' is .*expected a finite number >= 0"):
        replace(toy_graph([1, 1], [(0, 1)]), **{key: np.array([1.0, value])})  # type: ignore[arg-type]


def test_an_edge_to_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="edges names 7, which does not exist; expected 0 to 1"):
        toy_graph([1, 1], [(0, 7)])


@pytest.mark.parametrize("value", [-1.0, np.inf, 1e308])
def test_a_senseless_duration_is_named(value: float) -> None:
    with pytest.raises(InputError, match=r"measured_seconds of 'b' is .*expected a finite number >= 0"):
        replace(toy_graph([1, 1], [(0, 1)]), measured_seconds=np.array([np.nan, value]))


def test_two_ops_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two ops are called 'a'"):
        replace(toy_graph([1, 1], []), names=("a", "a"))


def test_a_graph_without_ops_is_refused() -> None:
    with pytest.raises(InputError, match="has no ops"):
        toy_graph([], [])


def test_every_op_comes_after_its_producers() -> None:
    graph = toy_graph([1] * 5, [(4, 0), (0, 2), (4, 3), (3, 2), (2, 1)])
    place = np.argsort(graph.topological_order)
    assert (place[graph.edges[:, 0]] < place[graph.edges[:, 1]]).all()
    assert graph.topological_order.tolist() == [4, 0, 3, 2, 1]


def test_ops_tied_by_mirror_or_group_are_one_unit() -> None:
    graph = replace(
        toy_graph([1] * 5, [], group=[-1, 3, 3, -1, -1]),
        mirror=np.array([-1, -1, -1, -1, 2]),
        phase=np.array([0, 0, 0, 0, Phase.BACKWARD]),
    )
    assert graph.units.tolist() == [0, 1, 1, 2, 1]
    assert graph.num_units == 3


def test_weight_bytes_count_a_shared_weight_at_every_op_that_reads_it() -> None:
    graph = toy_graph([1, 1], [], weights=[3, 5], weight_uses=[(0, 0), (1, 0), (1, 1)])
    assert graph.weight_bytes.tolist() == [3, 8]


@pytest.mark.parametrize(
    "change",
    [{"flops": np.array([1.0, 2.0])}, {"output_bytes": np.array([1.0, 2.0])}, {"names": ("a", "c")}],
)
def test_the_fingerprint_changes_with_what_the_graph_is(change: dict[str, object]) -> None:
    graph = toy_graph([1, 1], [(0, 1)])
    assert graph.fingerprint == toy_graph([1, 1], [(0, 1)]).fingerprint
    assert replace(graph, **change).fingerprint != graph.fingerprint  # type: ignore[arg-type]


def test_arrays_cannot_be_written() -> None:
    graph: OpGraph = toy_graph([1, 1], [(0, 1)])
    with pytest.raises(ValueError, match="read-only"):
        graph.flops[0] = 2


def test_neighbours_of_units_are_told_from_both_ends_with_the_link_between() -> None:
    rows = Units(toy_graph([1, 1], [(0, 1)])).neighbours
    assert [each.tolist() for each in rows] == [[0, 1, 2], [1, 0], [0, 0]]
    rows = Units(toy_graph([1, 1, 1], [(0, 1), (1, 2)])).neighbours
    assert [each.tolist() for each in rows] == [[0, 1, 3, 4], [1, 0, 2, 1], [0, 0, 1, 1]]


def test_times_on_kinds_of_devices_are_in_the_fingerprint() -> None:
    graph = toy_graph([1, 1], [(0, 1)])
    times: tuple[dict[str, list[float]], ...] = ({}, {"a": [1.0, 2.0]}, {"a": [1.0, 3.0]}, {"b": [1.0, 2.0]})
    found = {replace(graph, measured_on={on: np.array(of) for on, of in each.items()}).fingerprint for each in times}
    assert len(found) == len(times)
