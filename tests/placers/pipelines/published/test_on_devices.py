"""Planners of pipelines make placements, and say why, where only those make sense."""

import pytest

from envs.plans.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from tests.contracts.test_placers import training_graph
from tests.oracle.toys import toy_cluster

PLANNERS = ("black_gpipe:order=gpipe", "dapple:form=printed", "pipedream:form=printed")


def placed(planner: str, objective: str) -> PlacerResult:
    problem = Problem(training_graph(), toy_cluster(3, memory=1e6), objective=objective_of(objective))
    found: PlacerResult = by_name.build("placers", planner).place(problem)
    return found


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_pipeline_has_passes_and_under_a_pipelined_objective_it_is_a_placement(planner: str) -> None:
    in_passes, without = placed(planner, "step-time"), placed(planner, "max-load")
    assert in_passes.plan.schedule.micro_batches > 1
    assert not any(": stages without" in note for note in in_passes.notes)
    assert without.plan.is_placement
    [note] = without.notes
    assert ": stages without mi" in note  # micro-batches, or the mini-batches of PipeDream
    assert note.endswith("since the objective 'max-load' is about samples that follow one another anyway.")


@pytest.mark.parametrize("planner", PLANNERS)
def test_all_may_be_one_layer_but_none_is_too_few(planner: str) -> None:
    by_name.build("placers", f"{planner},layers=1")
    with pytest.raises(InputError, match="layers is 0; expected at least 1"):
        by_name.build("placers", f"{planner},layers=0")
