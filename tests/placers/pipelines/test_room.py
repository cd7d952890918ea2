"""Plans for requests leave memory for what is kept of these, if there is some; and then pass more, as Helix has it."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.objectives import evaluate_objective
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.foundation.by_name import build
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of
from placers.pipelines.room import ROOM, with_room
from placers.planner import Planner
from tests.envs.expansion.pipelines import Pipeline, servers

LAYERS, SAMPLES = 8, 16
HELIX = Path(os.environ.get("PLACELAB_HELIX", "helix42.toml"))
NODES = {"A100": 4, "V100": 6, "L4": 8, "T4": 10, "L4x2": 4, "T4x2": 6, "T4x4": 4}


def serving(room: float, objective: str = "throughput", *, is_training: bool = False) -> Problem:
    """Layers of a byte, and two devices with room for so many; the first one is three times as fast."""
    chain = Pipeline(LAYERS, forward=float(SAMPLES), weights=1.0, is_training=is_training)
    even = servers(2, memory=room)
    fast, slow = even.devices
    cluster = replace(even, devices=(replace(fast, flops_per_second=3.0), slow))
    return Problem(replace(chain.graph(), batch_law=BatchLaw(SAMPLES)), cluster, objective=objective_of(objective))


def most_held(problem: Problem, placer: Planner) -> tuple[int, bool]:
    """Layers on the fullest device of a plan, and whether a note says that it left some memory free."""
    result = placer.place(problem, budget=40)
    held = Counter(device for devices in result.plan.devices for device in devices)
    return max(held.values()), any("is left free" in note for note in result.notes)


@pytest.mark.parametrize("objective", ["throughput", "flow"])
def test_a_third_of_the_memory_is_left_free_for_requests(objective: str) -> None:
    placer = Planner(policy="", split=False)
    assert most_held(serving(7.5, objective), placer) == (5, True)
    assert most_held(serving(7.5, objective), replace(placer, room=0.0)) == (6, False)  # 6:2 is as fast as can be


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (serving(4.5), "all layers take what is there"),
        (serving(5.9), "three layers have room on each device, and there are eight"),
        (serving(20.0), "each device has room for all"),
        (serving(7.5, "latency"), "requests do not follow one another"),
        (serving(7.5, "step-time"), "there are no requests"),
        (serving(7.5, is_training=True), "neither are there in training"),
    ],
)
def test_else_plans_may_fill_it(problem: Problem, why: str) -> None:
    assert with_room(problem, ROOM) is problem, why


def test_what_is_no_share_is_refused() -> None:
    with pytest.raises(InputError, match=r"planner: room is 1\.0; expected a share of each device's memory, from 0"):
        build("placers", "planner:room=1")


# ---- Helix -----------------------------------------------------------------------------------------------------------


def helix(samples: int = 2304) -> Problem:
    """LLaMA-2 70B on the 42 nodes of seven kinds of Mei et al. (2025), section 6.5, by their rates with two thirds of
    the layers that a node may hold.

    `PLACELAB_HELIX` is a file of rates with their profile, tokens per second of `NODES` by layers.
    """
    rates = tomllib.loads(HELIX.read_text())["samples_per_second"]
    kinds = [kind for kind, count in NODES.items() for _ in range(count)]
    of_layer = [samples / (rates[kind][count - 1] * count) for kind in kinds for count in [len(rates[kind]) * 2 // 3]]
    none, layer = np.zeros(80), 1.53e9
    graph = OpGraph(
        "llama-70b", tuple(f"layers.{each}" for each in range(80)), ("layer",) * 80, none, none,
        np.full(80, 16384.0 * samples), np.array([(each, each + 1) for each in range(79)]), weights=np.full(80, layer),
        weight_uses=np.array([(each, each) for each in range(80)]), batch_law=BatchLaw(samples),
    )  # fmt: skip
    even = servers(len(kinds), latency=1e-3, bandwidth=1e9 / 8, shared_out=True)
    devices = tuple(
        replace(device, name=f"{kind}:{number}", memory_bytes=len(rates[kind]) * layer + 0.3e9)
        for number, (device, kind) in enumerate(zip(even.devices, kinds, strict=True))
    )
    seconds = np.tile(of_layer, (80, 1))
    return Problem(
        graph, replace(even, devices=devices), "none", op_seconds=seconds, objective=objective_of("throughput")
    )


def rule_of_thumb(problem: Problem, layers: int = 4) -> Plan:
    """Equal stages of devices that are as fast in all: each device, the fastest first, to the slowest stage (Swarm)."""
    assert problem.op_seconds is not None
    speed, stages = 1 / problem.op_seconds[0], len(problem.graph) // layers
    of_stage, devices = np.zeros(stages), [list[int]() for _ in range(stages)]
    for device in np.argsort(-speed, kind="stable").tolist():
        stage = int(of_stage.argmin())
        of_stage[stage] += speed[device]
        devices[stage].append(device)
    stage_of = np.repeat(np.arange(stages), layers).tolist()
    return Plan(tuple(tuple(devices[stage]) for stage in stage_of), schedule=Schedule(stages=tuple(stage_of)))


@pytest.mark.slow
@pytest.mark.skipif(not HELIX.exists(), reason="PLACELAB_HELIX names no file with the profile of Helix")
def test_on_helix_nodes_it_passes_more_than_a_rule_of_thumb_by_helix_profile() -> None:
    problem = helix()
    judged = replace(problem, objective=objective_of(f"flow:rates={HELIX}"))
    plans = [Planner(room=room).place(problem, budget=1000).plan for room in (ROOM, 0.0)]
    with_some, without, by_thumb = (
        1 / (evaluate_objective(judged, plan) or np.inf) for plan in (*plans, rule_of_thumb(problem))
    )
    assert with_some > max(0.97 * 4892, by_thumb, without)
