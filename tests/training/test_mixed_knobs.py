"""Mixed knobs: further graphs of a family, none that it lists, none of a test graph's topology."""

from dataclasses import replace

import numpy as np
import pytest

from graphs.files.splits import split
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from tests.oracle.toys import random_graph
from training.problems import mixed_knobs as module
from training.problems.mixed_knobs import mixed_graphs, mixed_specs
from training.recipe import ProblemSet
from training.runs.problem_sets import load_problems


@pytest.mark.parametrize("family", ["gnmt", "rnnlm", "layered", "resnet", "llama"])
def test_every_knob_is_one_that_a_training_graph_has_and_no_listed_graph_comes_again(family: str) -> None:
    found = list(mixed_specs(family, 60, np.random.default_rng(0)))
    listed = [by_name.parse(spec)[1] for spec in split([family], "train")]
    knobs = [by_name.parse(spec)[1] for spec in found]
    assert len(found) == len(set(found)) > 10
    assert all(any(each.get(knob) == value for each in listed) for mixed in knobs for knob, value in mixed.items())
    tested = [by_name.parse(spec)[1] for spec in split([family], "test")]
    assert not [mixed for mixed in knobs if mixed in listed or mixed in tested]
    assert found == list(mixed_specs(family, 60, np.random.default_rng(0)))


def test_a_family_of_one_knob_has_no_mixtures() -> None:
    assert list(mixed_specs("ptb", 50, np.random.default_rng(0))) == []


def test_topologies_of_tests_and_what_cannot_be_built_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knob `a` decides the topology; a=2 is that of the test graph, and b=2 cannot be built with a=1."""
    monkeypatch.setattr(
        module, "split",
        lambda _, which: ["f:a=2,b=9"] if which == "test" else ["f:a=1,b=1", "f:a=2,b=2", "f:a=3,b=3"],
    )  # fmt: skip
    asked = []

    def capture(spec: str) -> OpGraph:
        asked.append(spec)
        knobs = by_name.parse(spec)[1]
        if (knobs["a"], knobs["b"]) == ("1", "2"):
            raise InputError("2 does not divide 1")
        return random_graph(9, seed=int(knobs["a"]))

    found = list(mixed_graphs("f", 9, np.random.default_rng(0), capture))
    assert asked[0] == "f:a=2,b=9"
    assert sorted(asked[1:]) == ["f:a=1,b=2", "f:a=1,b=3", "f:a=2,b=1", "f:a=2,b=3", "f:a=3,b=1", "f:a=3,b=2"]
    assert sorted(graph.fingerprint for graph in found) == sorted(
        [random_graph(9, seed=1).fingerprint, *[random_graph(9, seed=3).fingerprint] * 2]
    )
    assert len(list(mixed_graphs("f", 2, np.random.default_rng(0), capture))) == 2


def test_mixtures_join_the_training_split_alone_and_leave_the_rest_as_it_is() -> None:
    def load(which: str, mixed: int) -> list[str]:
        chosen = ProblemSet(families=("layered", "ptb"), clusters=("p100x2",), test_clusters=("p100x2",), mixed=mixed)
        problems = load_problems(chosen, "train" if which == "train" else "test", 0, lambda spec: graphs[spec])
        return [problem.graph.name for problem in problems]

    class Graphs(dict[str, OpGraph]):
        def __missing__(self, spec: str) -> OpGraph:
            self[spec] = replace(random_graph(10 + len(self), seed=len(self)), name=spec)
            return self[spec]

    graphs = Graphs()
    without, with_mixed = load("train", 0), load("train", 3)
    assert with_mixed[: len(without)] == without
    assert [name.partition(":")[0] for name in with_mixed[len(without) :]] == ["layered"] * 3
    assert load("test", 0) == load("test", 3)
