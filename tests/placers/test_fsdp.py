"""Fully sharded data parallelism: the plan is that of `parallel`, with as few micro-batches, or checkpoints, as fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.fsdp import Fsdp
from placers.parallel import Parallel
from placers.pipelines.budget import spending
from placers.pipelines.contest import Contest
from placers.pipelines.given_stages import pipeline_blocks
from placers.pipelines.rivals import of_degrees
from placers.planner import Planner

MODEL = "transformer:layers=3,width=64,heads=2,sequence=32,batch=16,vocabulary=64"


def problem(memory: float = 1e12) -> Problem:
    cluster = load_cluster("p100x4")
    devices = tuple(replace(device, memory_bytes=memory) for device in cluster.devices)
    return Problem(load_graph(MODEL, with_law=True), replace(cluster, devices=devices))


def peak(placer: Fsdp | Parallel, of: Problem) -> float:
    return float(simulate(of, placer.place(of).plan).peak_bytes.max())


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_it_is_parallel_with_replicas_alone(zero: Any) -> None:
    by_degrees = Parallel(zero=zero, micro_batches=2, recompute=True)
    assert Fsdp(zero, 2, "true").place(problem()).plan == by_degrees.place(problem()).plan
    assert Fsdp(zero).place(problem()).plan == Parallel(zero=zero).place(problem()).plan


def test_as_few_micro_batches_as_fit_or_blocks_computed_again_where_that_is_faster() -> None:
    roomy = problem()
    needs = [peak(Parallel(zero=3, micro_batches=count), roomy) for count in (1, 2, 4)]
    assert needs[0] > needs[1] > needs[2]
    tight = problem((needs[1] + needs[2]) / 2)
    kept = Fsdp(recompute="false").place(tight, budget=9).plan
    assert kept.schedule.micro_batches == 4
    again = Fsdp(recompute="true").place(tight, budget=9).plan
    assert simulate(tight, again).fits
    seconds = [simulate(tight, plan).step_seconds for plan in (kept, again)]
    assert simulate(tight, Fsdp().place(tight, budget=19).plan).step_seconds <= min(seconds)


def test_where_devices_wait_for_links_more_memory_is_not_slower_than_less_in_which_layers_are_computed_again() -> None:
    graph = load_graph("llama:layers=3,width=64,heads=2,inner=172,sequence=32,batch=16", with_law=True)
    roomy = Problem(graph, load_cluster("p100:devices=2"))
    kept = simulate(roomy, Parallel(zero=3).place(roomy).plan)
    needs, seconds = float(kept.peak_bytes.max()), list[float]()
    for memory in (0.8 * needs, 0.9 * needs, 2 * needs):
        tight = replace(roomy, cluster=roomy.cluster.with_each_device(memory_bytes=memory))
        timeline = simulate(tight, Fsdp().place(tight, budget=19).plan)
        assert timeline.fits
        seconds.append(timeline.step_seconds)
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[-1] < 0.95 * kept.step_seconds


def test_no_layers_that_are_computed_again_are_slower_than_the_first_blocks() -> None:
    roomy, by_blocks = problem(), [Fsdp(recompute=each, micro_batches=1) for each in ("false", "true")]
    kept, every = (placer.place(roomy, budget=1).plan for placer in by_blocks)
    least, most = simulate(roomy, kept), simulate(roomy, every)
    tight = problem(float(least.peak_bytes.max() + most.peak_bytes.max()) / 2)
    timeline = simulate(tight, Fsdp(micro_batches=1).place(tight, budget=9).plan)
    assert timeline.fits
    block = pipeline_blocks(tight, "fsdp", 1)[tight.graph.units]
    of_first = [
        simulate(
            tight, replace(every, schedule=replace(every.schedule, stages=tuple((block >= count).astype(int).tolist())))
        )
        for count in (1, 2)
    ]
    assert any(each.fits for each in of_first)
    assert least.step_seconds < timeline.step_seconds
    assert all(timeline.step_seconds <= each.step_seconds * (1 + 1e-9) for each in of_first if each.fits)


def test_without_simulations_it_is_the_first_plan_and_where_none_fits_the_one_that_lacks_least() -> None:
    found = Fsdp().place(problem(), budget=0)
    assert (found.plan, found.simulations) == (Parallel(zero=3).place(problem()).plan, 0)
    nothing_fits = problem(1.0)
    tried = Fsdp().place(nothing_fits, budget=99)
    assert 1 <= tried.simulations <= 99
    assert simulate(nothing_fits, tried.plan).peak_bytes.max() < peak(Parallel(zero=3), nothing_fits)


def test_the_planner_is_not_behind_it_where_memory_is_tight() -> None:
    tight = problem(peak(Parallel(zero=3, micro_batches=2), problem()))
    found = Planner(policy="", split=False).place(tight, budget=150)
    ours, sharded = (simulate(tight, plan) for plan in (found.plan, Fsdp().place(tight, budget=9).plan))
    assert ours.fits
    assert ours.step_seconds <= sharded.step_seconds
    assert "fsdp" in " ".join(found.notes)


def test_updates_are_offloaded_where_the_state_has_no_room() -> None:
    roomy = replace(problem(), cluster=load_cluster("cpu_gpu:gpus=2"))
    offloaded = Fsdp(offload=True).place(roomy)
    assert offloaded.plan == Parallel(zero=3, offload=True).place(roomy).plan
    assert offloaded.notes == ("fsdp: cpu:0 updates the weights (offload).",)
    least = Parallel(zero=3, micro_batches=4, recompute=True, offload=True).place(roomy).plan
    cpu, *gpus = roomy.cluster.devices
    room = float(simulate(roomy, least).peak_bytes[1:].max())
    devices = (
        replace(cpu, flops_per_second=cpu.flops_per_second / 1e3),
        *(replace(each, memory_bytes=room) for each in gpus),
    )
    tight = replace(roomy, cluster=replace(roomy.cluster, devices=devices))
    assert not simulate(tight, Fsdp().place(tight, budget=19).plan).fits
    assert simulate(tight, Fsdp(offload=True).place(tight, budget=19).plan).fits
    found = Planner(policy="", split=False).place(tight, budget=100)
    assert "fsdp:offload=true" in " ".join(found.notes)
    assert simulate(tight, found.plan).fits
    with pytest.raises(InputError, match="has none; list the CPU"):
        Fsdp(offload=True).place(problem())
    with pytest.raises(
        InputError, match="dp=3, tp=1 and pp=1 take 3 devices, cluster 'cpu_gpu:gpus=2' has 2 besides CPUs"
    ):
        Parallel(dp=3, offload=True).place(roomy)


def test_on_several_servers_each_holds_all_parts_where_that_is_faster() -> None:
    servers = replace(problem(), cluster=load_cluster("v100_servers"))
    found, whole = Fsdp().place(servers, budget=9), Parallel(zero=3).place(servers).plan
    assert found.plan == Parallel(zero=3, shard_group=4).place(servers).plan
    assert simulate(servers, found.plan).step_seconds < simulate(servers, whole).step_seconds
    assert "ZeRO-3 within groups of 4 devices" in " ".join(found.notes)
    small = replace(
        servers.cluster,
        devices=tuple(
            replace(device, memory_bytes=simulate(servers, whole).peak_bytes.max())
            for device in servers.cluster.devices
        ),
    )
    assert Fsdp(micro_batches=1, recompute="false").place(replace(servers, cluster=small), budget=9).plan == whole


def test_it_fits_on_several_servers_with_tensor_parallelism_where_neither_fits_alone() -> None:
    """As torchtitan combines them: sequence parallelism in each server, and ZeRO-3 over servers."""
    servers = replace(problem(), cluster=load_cluster("v100_servers:servers=2,devices=2"))
    degrees: dict[str, Any] = {"tp": 2, "sequence": True, "zero": 3}
    assert Fsdp(tp=2).place(servers).plan == Parallel(**degrees).place(servers).plan
    assert Fsdp(tp=2, micro_batches=2, recompute="true").place(servers).plan == (
        Parallel(micro_batches=2, recompute=True, **degrees).place(servers).plan
    )
    needs = peak(Parallel(micro_batches=4, recompute=True, **degrees), servers)
    devices = tuple(replace(device, memory_bytes=needs) for device in servers.cluster.devices)
    tight = replace(servers, cluster=replace(servers.cluster, devices=devices))
    found, alone = Fsdp(tp=2).place(tight, budget=12), Fsdp().place(tight, budget=19).plan
    assert simulate(tight, found.plan).fits
    assert not any(simulate(tight, each).fits for each in (alone, Parallel(tp=2, sequence=True).place(tight).plan))
    assert found.notes == ("fsdp: ZeRO-3 over 2 replicas of 2 tensor-parallel shards each.",)
    with spending(12, "planning") as spent:
        contest = Contest(tight, spent)
        for rival in of_degrees(tight):
            rival.compared(contest, 0, 0, 1)
    assert contest.best is not None
    assert contest.best.who == "fsdp:tp=2"
    assert not contest.best.merit.lacking


def test_devices_that_samples_do_not_divide_among_and_unequal_ones_take_shares() -> None:
    odd = replace(problem(), graph=load_graph(MODEL.replace("batch=16", "batch=7"), with_law=True))
    assert sorted(Fsdp().place(odd, budget=9).plan.schedule.shares[0]) == [1, 2, 2, 2]
    unequal = replace(problem(), cluster=load_cluster("mixed:rtx3090+rtx3060,link=pcie4x16"))
    found, equal = Fsdp().place(unequal, budget=9).plan, Parallel(zero=3).place(unequal).plan
    strong, weak = found.schedule.shares[0]
    assert strong > weak
    assert simulate(unequal, found).step_seconds < simulate(unequal, equal).step_seconds
    assert Fsdp().place(unequal, budget=1).plan.schedule.shares == found.schedule.shares  # the way that is tried first
    assert Fsdp(shares="3:1").place(unequal).plan == Parallel(zero=3, shares="3:1").place(unequal).plan


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"zero": 0}, "data_parallel"),
        ({"micro_batches": -1}, "at least 0"),
        ({"shares": "3"}, "says no shares"),
        ({"shard_group": 1}, "at least 2"),
        ({"tp": 0}, "at least 1"),
        ({"tp": 2, "zero": 2}, "zero=2 cannot be combined with tp=2"),
        ({"tp": 2, "shares": "3:1"}, "cannot be combined with tp=2 and zero=3"),
    ],
)
def test_what_it_does_not_take(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fsdp(**knobs)
