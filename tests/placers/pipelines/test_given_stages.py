"""Stages by hand: counts of blocks and names of modules say the same cut, to `gpipe` and to `parallel` alike."""

from dataclasses import replace

import numpy as np
import pytest

from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.op_groups.grouping import tie_ops
from graphs.problem import Problem
from placers.gpipe import GPipe
from placers.parallel import Parallel
from tests.envs.expansion.pipelines import Pipeline, servers

TRANSFORMER = "transformer:layers=4,width=16,heads=2,sequence=8,vocabulary=64,batch=8"
RESNET = "resnet:layers=26,image=32,batch=8"


@pytest.fixture(scope="module")
def transformer() -> Problem:
    return Problem(load_graph(TRANSFORMER), servers(4))


@pytest.fixture(scope="module")
def resnet() -> Problem:
    return Problem(load_graph(RESNET), servers(4))


def stages(problem: Problem, spec: str) -> tuple[int, ...]:
    """(ops,) the stage of each in the plan of a placer."""
    return by_name.build("placers", spec).place(problem).plan.schedule.stages  # type: ignore[no-any-return]


def first_forward_ops(problem: Problem, of: tuple[int, ...]) -> list[str]:
    """The first forward op of each stage, in the order of the program."""
    graph = problem.graph
    forward = np.flatnonzero(graph.phase == Phase.FORWARD).tolist()
    return [next(graph.names[op] for op in forward if of[op] == stage) for stage in range(max(of) + 1)]


@pytest.mark.parametrize(
    ("counts", "names"),
    [("1+3", "layers.1"), ("1+1+2", "layers.1+layers.2"), ("1+1+1+1", "layers.1+layers.2+layers.3")],
)
def test_counts_of_blocks_and_names_of_modules_say_the_same(transformer: Problem, counts: str, names: str) -> None:
    pp = counts.count("+") + 1
    said = [
        stages(transformer, f"{placer},stages={given}")
        for placer in (f"parallel:dp=1,pp={pp},micro_batches=4", "gpipe:micro_batches=4")
        for given in (counts, names)
    ]
    assert len(set(said)) == 1
    assert max(said[0]) + 1 == pp


def test_a_stage_begins_inside_of_a_block_at_a_module_or_an_op(resnet: Problem) -> None:
    of = stages(resnet, "gpipe:micro_batches=4,stages=blocks.1.expand+blocks.3/relu_11+classifier")
    begins = first_forward_ops(resnet, of)
    assert begins[0].startswith("stem/")
    assert begins[1].startswith("blocks.1.expand/")
    assert begins[2] == "blocks.3/relu_11"
    assert begins[3].startswith("classifier/")


def test_equal_counts_are_what_parallel_does_without_them(transformer: Problem) -> None:
    assert stages(transformer, "parallel:pp=2,dp=1") == stages(transformer, "parallel:pp=2,dp=1,stages=2+2")
    interleaved = "parallel:pp=2,dp=1,interleaved=2,micro_batches=2"
    assert stages(transformer, interleaved) == stages(transformer, f"{interleaved},stages=layers.1+layers.2+layers.3")


def test_where_there_are_only_placements_stages_are_a_placement(transformer: Problem) -> None:
    plan = GPipe(micro_batches=1, stages="1+3").place(transformer).plan
    assert plan.is_placement
    assert tuple(plan.placement.tolist()) == stages(transformer, "gpipe:micro_batches=2,stages=1+3")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("2+3", r"gpipe: stages=2\+3 says 5 blocks, 'transformer:.*' has 4; change one"),
        ("layer.2", r"gpipe: stages: unknown module 'layer.2'; did you mean 'layers.2'\? there are: "),
        (
            "layers.2+layers.1",
            "the stage that begins at 'layers.1' would leave nothing to the one before it; name modules",
        ),
        ("layers.1+layers.1", "'layers.1' would leave nothing to the one before it"),
        ("tokens", "'tokens' would leave nothing to the one before it"),
        ("1+1+1+1+1", r"says 5 stages, the devices of 'servers4' are enough for 4 with replicas=1; say fewer"),
    ],
)
def test_stages_that_a_graph_or_cluster_does_not_have_are_refused(
    transformer: Problem, given: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        GPipe(micro_batches=2, stages=given).place(transformer)


def test_ops_that_are_grouped_across_a_cut_are_refused(transformer: Problem) -> None:
    few = replace(transformer, graph=tie_ops(transformer.graph, 5))
    with pytest.raises(
        InputError, match=r"no stage can begin at 'layers.2', since 'layers.1.* placed as one group; pla"
    ):
        GPipe(micro_batches=2, stages="layers.2").place(few)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("gpipe:stages=2+0", r"gpipe: stages is '2\+0'; expected how many blocks each has, such as 5\+6\+6\+7, or the"),
        ("gpipe:stages=layers.1+", r"stages is 'layers.1\+'; expected how many blocks"),
        ("gpipe:stages=2+2,partition=block", "partition=block balances stages, but stages=2[+]2 says them; leave one"),
        ("parallel:pp=2,stages=3", "parallel: stages=3 says 1 stages, pp=2 and interleaved=1 say 2; change one"),
        ("parallel:pp=2,stages=3+x", "parallel: stages=3[+]x says 3 stages, pp=2 and interleaved=1 say 2; change one"),
    ],
)
def test_what_no_model_has_is_refused_before_one_is_captured(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        by_name.build("placers", spec)


def test_graphs_without_blocks_take_the_names_of_ops() -> None:
    problem = Pipeline(4, micro_batches=4).problem(servers(4))
    with pytest.raises(InputError, match=r"show no blocks, .* cannot be cut into 2 stages; name the modules at which"):
        Parallel(pp=2, dp=1).place(problem)
    assert stages(problem, "parallel:pp=2,dp=1,micro_batches=4,stages=s3")[:4] == (0, 0, 0, 1)
