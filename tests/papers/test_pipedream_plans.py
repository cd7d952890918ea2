"""PipeDream's pipelines with replicas as plans: where stages go, how many mini-batches, and what the engine says."""

from __future__ import annotations

import numpy as np
import pytest

from envs.expansion.expanded import Role
from envs.simulation.simulator import simulate
from graphs.cluster import Cluster
from graphs.clusters import p100_switches
from graphs.formats.pipedream import LayerProfile
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from graphs.transforms.batch import scaled
from placers.pipedream import PipeDream
from placers.pipelines.published.pipedream_planner import on_groups
from tests.envs.expansion.pipelines import servers
from tests.papers.pipedream_profiles import chain_profile, profile
from tests.papers.test_pipedream import row


def problem_of(given: LayerProfile, mini_batches: int, cluster: Cluster) -> Problem:
    """A step of so many batches of the profile."""
    return Problem(scaled(given.graph(), mini_batches), cluster)


def replicas_of(placer: PipeDream, problem: Problem) -> list[tuple[int, ...]]:
    plan = placer.place(problem).plan
    plan.check(problem)
    return [devices for _, devices in sorted(dict(zip(plan.schedule.stages, plan.devices, strict=True)).items())]


def test_vgg_16_on_four_machines() -> None:
    """The first row of the references: 17 layers on three machines, 23 on one."""
    problem = problem_of(profile("vgg16"), 12, row(4, 1e9))
    placer = PipeDream(form="released", mini_batches=12)
    assert replicas_of(placer, problem) == [(0, 1, 2), (3,)]
    stages = "2 stages, of 17 and 23 of the 40 pieces that the graph is cut into, on 3 and 1 devices"
    assert f"{stages}, whose replicas take turns" in placer.place(problem).notes[0]
    assert "0.205521 s for each of 12 mini-batches" in placer.place(problem).notes[0]


def test_the_engine_meets_the_estimate_once_the_pipeline_is_full() -> None:
    """Three replicas of four seconds, and two stages more, whose weights would take long to sum up."""
    chain = chain_profile([(2, 0, 0), (2, 0, 0), (4 / 3, 0, 3), (1, 0, 3)])
    seconds, placer = [], PipeDream(form="printed")
    for mini_batches in (60, 120):
        problem = problem_of(chain, mini_batches, servers(5, bandwidth=1.0))
        asked = PipeDream(form="printed", mini_batches=mini_batches)
        assert replicas_of(asked, problem) == [(0, 1, 2), (3,), (4,)]
        seconds.append(simulate(problem, asked.place(problem).plan).step_seconds)
        assert f"1.33333 s for each of {mini_batches}" in asked.place(problem).notes[0]
    assert (seconds[1] - seconds[0]) / 60 == pytest.approx(4 / 3, rel=1e-9)
    problem = problem_of(chain, 21, servers(5, bandwidth=1.0))
    assert placer.place(problem).plan.schedule.micro_batches == 21  # about four for each device, shared by three


def test_each_mini_batch_updates_the_weights_and_old_versions_are_kept() -> None:
    problem = problem_of(chain_profile([(2, 1, 8), (1, 1, 8)]), 8, row(2, 1.0))
    plan = PipeDream(form="printed", mini_batches=8).place(problem).plan
    assert (plan.schedule.update, plan.schedule.sharing) == ("micro_batch", "turns")
    timeline = simulate(problem, plan)
    assert timeline.expansion is not None
    assert (timeline.expansion.role == Role.VERSION).any()


def test_stages_have_so_many_replicas_as_divide_the_mini_batches() -> None:
    chain = chain_profile([(3, 0, 0), (1, 0, 1)])  # weights that replicas of both would sum up

    def planned(devices: int, mini_batches: int) -> list[tuple[int, ...]]:
        placer = PipeDream(form="released", mini_batches=mini_batches)
        return replicas_of(placer, problem_of(chain, mini_batches or 24, row(devices, 100.0)))

    assert planned(4, 0) == planned(4, 12) == [(0, 1, 2), (3,)]
    assert planned(4, 8) == [(0, 1, 2, 3)]
    assert planned(3, 8) == [(0, 1), (2,)]
    assert planned(4, 7) == [(0,), (1,)]  # two devices have nothing to do


def test_straight_pipelines_have_no_replicas() -> None:
    chain = chain_profile([(3, 0, 0), (1, 0, 0), (1, 0, 0)])
    asked = PipeDream(form="printed", straight=True)
    assert replicas_of(asked, problem_of(chain, 8, servers(3))) == [(0,), (1,), (2,)]
    assert replicas_of(asked, problem_of(chain, 8, servers(4))) == [(0,), (1,), (2,)]


def test_copies_of_a_pipeline_are_in_servers_of_their_own() -> None:
    assert on_groups([(2, 2), (1, 2)], ((0, 1, 2), (3, 4, 5))) == ((0, 3, 1, 4), (2, 5))
    assert on_groups([(3, 1), (1, 1), (2, 1)], ((0, 1, 2), (3, 4, 5))) == ((0, 1, 2), (3,), (4, 5))
    assert on_groups([(3,), (1,)], ((0, 1, 2, 3),)) == ((0, 1, 2), (3,))
    assert on_groups([(2, 2), (1, 2)], ((0, 1, 2), (3, 4, 5)), in_turns=False) == ((0, 1, 3, 4), (2, 5))
    chain = chain_profile([(3, 1e9, 0), (1, 1e9, 0)])
    problem = problem_of(chain, 8, p100_switches.build(switches=2, devices=2))
    plan = PipeDream(form="printed", mini_batches=8).place(problem).plan
    assert {tuple(sorted(devices)) for devices in plan.devices} == {(0, 1, 2, 3)}


def test_what_does_not_fit_is_planned_and_said() -> None:
    chain = chain_profile([(1, 1, 4), (1, 1, 4)])
    tight = problem_of(chain, 8, row(2, 1e9, memory=20.0))
    assert "no such pipeline fits" in PipeDream(form="printed", mini_batches=8).place(tight).notes[0]
    enough = problem_of(chain, 8, row(2, 1e9, memory=22.0))
    placer = PipeDream(form="printed", mini_batches=8)
    assert replicas_of(placer, enough) == [(0,), (1,)]  # a replica of both layers would need 34 bytes
    assert "fits" not in placer.place(enough).notes[0]
    assert simulate(enough, placer.place(enough).plan).fits


def test_where_only_placements_make_sense_stages_are_without_replicas() -> None:
    problem = Problem(chain_profile([(3, 1, 1), (1, 1, 1)]).graph(), servers(2), objective=objective_of("max-load"))
    result = PipeDream(form="printed").place(problem)
    assert result.plan == PipeDream().place(problem).plan
    assert "without mini-batches or replicas, since the objective 'max-load'" in result.notes[0]
    assert result.placer == "pipedream:form=printed"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="layers is 0"):
        PipeDream(form="printed", layers=0)
    with pytest.raises(InputError, match="'pipedream:mini_batches=4' is an op placement"):
        PipeDream(mini_batches=4)
    graph = chain_profile([(3, 1, 1), (1, 1, 1)]).graph()
    assert not graph.samples
    assert np.unique(PipeDream().place(Problem(graph, servers(2))).plan.placement).tolist() == [0, 1]


def test_with_a_flush_the_same_stages_split_each_mini_batch() -> None:
    problem = problem_of(profile("vgg16"), 8, row(4, 1e9))
    result = PipeDream(form="released", flush=True).place(problem)
    result.plan.check(problem)
    schedule = result.plan.schedule
    assert (schedule.micro_batches, schedule.update, schedule.sharing) == (8, "step", "split")
    assert replicas_of(PipeDream(form="released", flush=True), problem) == [(0, 1, 2), (3,)]
    assert "whose replicas split mini-batches: by the released program 0.205521 s for each of 8" in result.notes[0]
    assert "1.84969 s for the step with filling and emptying" in result.notes[0]  # nine times as long
    assert "older" not in result.notes[0]


def test_with_a_flush_no_versions_of_weights_are_kept() -> None:
    chain = chain_profile([(1, 1, 4), (1, 1, 4)])
    tight = problem_of(chain, 8, row(2, 1e9, memory=19.0))  # 16, two activations and one on its way
    result = PipeDream(form="printed", flush=True).place(tight)
    assert "fits" not in result.notes[0]
    assert simulate(tight, result.plan).fits
    assert "no such pipeline fits" in PipeDream(form="printed", mini_batches=8).place(tight).notes[0]
