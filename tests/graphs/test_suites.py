"""Suites name families and clusters that exist."""

import pytest

from graphs import by_name
from graphs.errors import InputError
from graphs.load import load_cluster
from graphs.suites import SUITES, load_suite, suite_specs


@pytest.mark.parametrize("name", SUITES)
def test_every_problem_of_a_suite_can_be_built(name: str) -> None:
    for graph, cluster in suite_specs(name):
        by_name.build("graphs.families", graph)
        assert cluster.endswith(f"devices={len(load_cluster(cluster))}")


def test_the_sizes_are_those_of_the_papers() -> None:
    assert [len(load_cluster(cluster)) for _, cluster in suite_specs("gdp12")] == [2, 4, 2, 4, 8, 2, 4, 8, 2, 4, 2, 4]
    assert [len(load_cluster(cluster)) for _, cluster in suite_specs("placeto")] == [2, 4, 2, 4, 2, 4]


def test_a_suite_is_loaded_by_name_with_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    small = (("layered:seed=0", "p100:devices=2"), ("layered:seed=0", "p100:devices=4"))
    monkeypatch.setitem(SUITES, "small", small)
    problems = load_suite("small", groups=16)
    assert [problem.graph.num_units for problem in problems] == [16, 16]
    assert [len(problem.cluster) for problem in problems] == [2, 4]
    with pytest.raises(InputError, match="unknown suite 'gdp'; did you mean 'gdp12'"):
        load_suite("gdp")


def test_a_named_configuration_is_a_spec_and_its_knobs_can_be_replaced() -> None:
    assert by_name.expanded("graphs.families", "resnet:resnet-50,batch=32") == "resnet:layers=50,image=224,batch=32"
    assert by_name.expanded("graphs.families", "resnet:layers=50") == "resnet:layers=50"
    with pytest.raises(InputError, match="unknown configuration of resnet 'resnet-51'; did you mean 'resnet-50'"):
        by_name.build("graphs.families", "resnet:resnet-51")
