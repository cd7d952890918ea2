"""Helix' answers for LLaMA-2 70B on 42 nodes of seven kinds, and on 24 of three, with its own profile.

Mei et al. (2025), "Helix: Serving Large Language Models over Heterogeneous GPUs and Network via Max-Flow", sections 6.3
to 6.5, and github.com/Thesys-lab/Helix-ASPLOS25, `simulator/model_manager`: tokens per second of a node by how many
layers it holds, from its tables of prefill and decoding by the requests that there is memory for. A plan is worth the
most tokens that pass, a maximum flow; so it is there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from envs.objectives import evaluate_objective
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from evaluation.studies.published.public_planner import Job, Theirs, Verdict
from graphs.cluster import Cluster, Device
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem, objective_of

LAYERS, SAMPLES = 80, 2304  # samples: tokens that pass together
WEIGHTS, BESIDE, OUTPUT = 1.53e9, 0.3e9, 16384.0  # bytes of a layer, on a node beside its layers, of a token
BANDWIDTH, LATENCY = 1e9 / 8, 1e-3  # bytes per second and seconds of a link
SOURCE = "Thesys-lab/Helix-ASPLOS25, and section 6.{} of its paper"
SWARM = 4  # layers of a stage by Swarm's rule
Rates = Mapping[str, Sequence[float]]

OF_42: Rates = {
    "A100": (31585, 15335, 9749, 6949, 5363, 4217, 3324, 2778, 2291, 1897, 1622, 1296),
    "V100": (13363, 5756, 3264, 1982),
    "L4": (9171, 4238, 2587, 1749, 1236, 896, 643),
    "T4": (6158, 2729, 1553, 905),
    "L4x2": (17120, 8318, 5381, 3909, 3043, 2445, 2015, 1681, 1429, 1238, 1067, 911, 786, 675),
    "T4x2": (12242, 5811, 3710, 2659, 2000, 1566, 1241, 992, 789),
    "T4x4": (
        20243, 9960, 6587, 4851, 3807, 3124, 2619, 2240, 1944, 1715, 1536, 1379, 1242, 1123, 1018, 923, 838, 760,
    ),
}  # fmt: skip
NODES_42 = {"A100": 4, "V100": 6, "L4": 8, "T4": 10, "L4x2": 4, "T4x2": 6, "T4x4": 4}
OF_24: Rates = {
    "A100": (24832, 11883, 7585, 5554, 4124, 3344, 2631, 2160, 1793, 1497, 1251, 997),
    "L4": (7465, 3421, 2116, 1411, 999, 733, 508),
    "T4": (5189, 2295, 1281, 739),
}
NODES_24 = {"A100": 4, "L4": 8, "T4": 12}


def _problem(nodes: Mapping[str, int], rates: Rates) -> Problem:
    """A chain of layers, each as fast as with two thirds of the layers that a node may hold."""
    kinds = [kind for kind, count in nodes.items() for _ in range(count)]
    of_layer = [SAMPLES / (rates[kind][count - 1] * count) for kind in kinds for count in [len(rates[kind]) * 2 // 3]]
    none, number = np.zeros(LAYERS), np.arange(LAYERS)
    graph = OpGraph(
        "llama-70b", tuple(f"layers.{each}" for each in number), ("layer",) * LAYERS, none, none,
        np.full(LAYERS, OUTPUT * SAMPLES), np.stack([number[:-1], number[1:]], axis=1),
        weights=np.full(LAYERS, WEIGHTS), weight_uses=np.stack([number, number], axis=1), batch_law=BatchLaw(SAMPLES),
    )  # fmt: skip
    devices = tuple(
        Device(f"{kind}:{number}", "gpu", 1e12, 1e12, len(rates[kind]) * WEIGHTS + BESIDE)
        for number, kind in enumerate(kinds)
    )
    count = len(kinds)
    cluster = Cluster(
        f"{count} nodes", devices, latency=np.full((count, count), LATENCY),
        bandwidth=np.full((count, count), BANDWIDTH), channel=np.arange(count * count).reshape(count, count),
    )  # fmt: skip
    seconds = np.tile(of_layer, (LAYERS, 1))
    return Problem(graph, cluster, "none", op_seconds=seconds, objective=objective_of("throughput"))


def problem_42() -> Problem:
    """The nodes of section 6.5."""
    return _problem(NODES_42, OF_42)


def problem_24() -> Problem:
    """Those of section 6.3."""
    return _problem(NODES_24, OF_24)


def _rates_of(problem: Problem) -> Rates:
    return OF_42 if len(problem.cluster) == sum(NODES_42.values()) else OF_24


def _flow(problem: Problem, plan: Plan) -> Verdict:
    """Seconds of each of the tokens that pass, with rates by the layers that a node holds."""
    rates = _rates_of(problem).items()
    text = "".join(f"{kind} = {[float(each) for each in some]}\n" for kind, some in rates)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rates.toml"
        file.write_text(f'schema = "placelab.rates"\nversion = 1\n\n[samples_per_second]\n{text}')
        judged = replace(problem, objective=objective_of(f"flow:rates={file}"))
        seconds = evaluate_objective(judged, plan)
    return (math.inf, False) if seconds is None else (float(seconds), math.isfinite(seconds))


def _swarm(problem: Problem) -> tuple[Problem, Plan]:
    """Equal stages that are as fast in all: each node, the fastest first, to the slowest stage."""
    kinds = [device.name.partition(":")[0] for device in problem.cluster.devices]
    speed, stages = np.array([_rates_of(problem)[kind][SWARM - 1] for kind in kinds]), LAYERS // SWARM
    of_stage, devices = np.zeros(stages), [list[int]() for _ in range(stages)]
    for device in np.argsort(-speed, kind="stable").tolist():
        stage = int(of_stage.argmin())
        of_stage[stage] += speed[device]
        devices[stage].append(device)
    stage_of = np.repeat(np.arange(stages), SWARM).tolist()
    return problem, Plan(tuple(tuple(devices[each]) for each in stage_of), schedule=Schedule(stages=tuple(stage_of)))


JOBS = (
    Job(
        "helix-42", "LLaMA-2 70B, requests, 42 nodes of seven kinds", SOURCE.format(5),
        problem_42,
        (
            Theirs("Helix", "mixed-integer program", 4137.5, "its own flow"),
            Theirs("Helix", "Swarm's rule, to which it compares", 4892.0, "its own flow", _swarm),
        ),
        "tokens/s", 1.0, _flow,
    ),
    Job(
        "helix-24", "LLaMA-2 70B, requests, 24 nodes of three kinds",
        SOURCE.format(3), problem_24,
        (Theirs("Helix", "mixed-integer program", 1289.6, "its own flow"),), "tokens/s", 1.0, _flow,
    ),
)  # fmt: skip
