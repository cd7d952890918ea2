"""Suites name families and clusters that exist."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from graphs.files.load import load_cluster, load_suite
from graphs.files.splits import split
from graphs.files.suites import KEPT_ASIDE, SUITES, suite_specs
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["gdp12", "placeto"])
def test_every_problem_of_a_paper_can_be_built(name: str) -> None:
    for graph, cluster in suite_specs(name):
        by_name.build("graphs.families", graph)
        assert cluster.endswith(f"devices={len(load_cluster(cluster))}")


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_names_what_exists_in_full_and_once(name: str) -> None:
    pairs = suite_specs(name)
    assert len(set(pairs)) == len(pairs)
    assert all(load_cluster(cluster).name == cluster for cluster in {cluster for _, cluster in pairs})
    assert {family(graph) for graph, _ in pairs} <= set(by_name.built_in("graphs.families"))
    assert (SUITES[name].__doc__ or "").endswith(".")


def family(graph: str) -> str:
    return graph.partition(":")[0]


def test_heldout_has_up_to_four_test_graphs_of_each_family_that_is_trained_on() -> None:
    graphs = dict.fromkeys(graph for graph, _ in suite_specs("heldout"))
    counts = Counter(family(graph) for graph in graphs)
    assert set(counts) == set(by_name.built_in("graphs.families")) - set(KEPT_ASIDE)
    assert set(counts.values()) <= {3, 4}, "families weigh alike"
    assert set(graphs) <= set(split(tuple(counts), "test"))
    assert {cluster for _, cluster in suite_specs("heldout")} == {"p100:devices=2", "p100:devices=4"}


def test_new_families_are_those_kept_aside_with_all_their_graphs() -> None:
    graphs = {graph for graph, _ in suite_specs("newfamilies")}
    assert graphs == {*split(KEPT_ASIDE, "train"), *split(KEPT_ASIDE, "test")}
    assert not graphs & {graph for graph, _ in suite_specs("heldout")}


def test_other_clusters_are_none_of_those_of_heldout_and_of_several_kinds() -> None:
    other, usual = ({cluster for _, cluster in suite_specs(name)} for name in ("clusters", "heldout"))
    assert other >= {"p100:devices=8", "v100:devices=4", "cpu_gpu:gpus=2"}
    assert not other & usual
    assert len({cluster.partition(":")[0] for cluster in other}) >= 5
    assert {graph for graph, _ in suite_specs("clusters")} <= {graph for graph, _ in suite_specs("heldout")}


def test_curves_has_two_graphs_of_every_family_that_other_suites_have_too() -> None:
    pairs = suite_specs("curves")
    assert len(pairs) == 38
    families = by_name.built_in("graphs.families")
    for name, number in (("p100:devices=4", 0), ("p100:devices=2", 1)):
        graphs = [graph for graph, cluster in pairs if cluster == name]
        assert graphs == [split([family], "test")[number] for family in families]
    assert set(pairs) <= {*suite_specs("heldout"), *suite_specs("newfamilies")}


def test_listing_suites_imports_no_family() -> None:
    code = (
        "import sys; from evaluation.commands.listing import Listing; Listing.of(['suites']).to_json(); "
        "sys.exit(any(m.startswith('graphs.families.') or m == 'torch' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_the_sizes_are_those_of_the_papers() -> None:
    assert [len(load_cluster(cluster)) for _, cluster in suite_specs("gdp12")] == [2, 4, 2, 4, 8, 2, 4, 8, 2, 4, 2, 4]
    assert [len(load_cluster(cluster)) for _, cluster in suite_specs("placeto")] == [2, 4, 2, 4, 2, 4]


def test_a_suite_is_loaded_by_name_with_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    small = (("layered:seed=0", "p100:devices=2"), ("layered:seed=0", "p100:devices=4"))
    monkeypatch.setitem(SUITES, "small", lambda: small)
    monkeypatch.setitem(SUITES, "other", lambda: (("layered:seed=0", "v100:devices=3"),))
    problems = load_suite("small,other", groups=16)
    assert [problem.graph.num_units for problem in problems] == [16, 16, 16]
    assert [len(problem.cluster) for problem in problems] == [2, 4, 3]
    assert len({id(problem.graph) for problem in problems}) == 1, "captured once"
    assert len(load_suite("small,other,small", groups=16)) == 3, "each problem once"


def test_what_is_wrong_with_a_suite_is_found_before_a_model_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **keywords: object) -> None:
        raise AssertionError("nothing may be captured")

    monkeypatch.setattr("graphs.files.load.load_graph", never)
    monkeypatch.setitem(SUITES, "small", lambda: (("layered:seed=0", "p100:devices=2"), ("layered", "p1000")))
    with pytest.raises(InputError, match="unknown suite 'gdp'; did you mean 'gdp12'"):
        load_suite("gdp12,gdp")
    with pytest.raises(InputError, match="one is empty"):
        load_suite("gdp12,,placeto")
    with pytest.raises(InputError, match="unknown cluster 'p1000'"):
        load_suite("small")
    with pytest.raises(InputError, match="unknown optimizer 'lamb'"):
        load_suite("gdp12", optimizer="lamb")


def test_a_named_configuration_is_a_spec_and_its_knobs_can_be_replaced() -> None:
    assert by_name.expanded("graphs.families", "resnet:resnet-50,batch=32") == "resnet:layers=50,image=224,batch=32"
    assert by_name.expanded("graphs.families", "resnet:layers=50") == "resnet:layers=50"
    with pytest.raises(InputError, match="unknown configuration of resnet 'resnet-51'; did you mean 'resnet-50'"):
        by_name.build("graphs.families", "resnet:resnet-51")
