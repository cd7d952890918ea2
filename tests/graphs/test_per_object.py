import gc
import weakref

import numpy as np

from envs.orders.program import ProgramOrder
from graphs.foundation.per_object import once_per_object
from graphs.op_graph import RECOMPUTED, OpGraph
from graphs.op_graph.kinds import by_kind, ends_with, runs_again
from graphs.problem import Problem
from tests.oracle.toys import Toy


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


def test_each_object_is_asked_once_and_freed() -> None:
    asked: list[str] = []

    @once_per_object
    def length(of: Named) -> int:
        asked.append(of.name)
        return len(of.name)

    one, other = Named("one"), Named("other")
    assert [length(one), length(other), length(one)] == [3, 5, 3]
    assert asked == ["one", "other"]
    lives = weakref.ref(one)
    del one
    gc.collect()
    assert lives() is None


def test_kinds_are_asked_once_each_and_say_the_same_of_every_op() -> None:
    kinds = ("aten.mm", "aten.relu", f"aten.mm{RECOMPUTED}", "aten.relu", "aten.mm")
    none = np.zeros(len(kinds))
    graph = OpGraph("kinds", tuple("abcde"), kinds, none, none, none, np.zeros((0, 2), np.int64))
    asked: list[str] = []

    def says(kind: str) -> int:
        asked.append(kind)
        return len(kind)

    assert by_kind(graph, says).tolist() == [len(kind) for kind in kinds]
    assert sorted(asked) == sorted(set(kinds))
    assert by_kind(graph, lambda kind: kind.startswith("aten")).tolist() == [True] * len(kinds)
    assert ends_with(graph, "mm").tolist() == [kind.endswith("mm") for kind in kinds]
    assert runs_again(graph).tolist() == [False, False, True, False, False]


def test_who_changes_priorities_changes_nothing_for_others(four_ops_two_devices: Toy) -> None:
    problem: Problem = four_ops_two_devices.problem
    first = ProgramOrder().priorities(problem, np.zeros(0))
    kept = first.copy()
    first[:] = -1
    assert ProgramOrder().priorities(problem, np.zeros(0)).tolist() == kept.tolist()
