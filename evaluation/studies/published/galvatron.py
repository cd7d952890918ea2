"""Galvatron's answers for a Llama of 28 layers on eight GPUs of 36 GB, with its own profile.

github.com/PKU-DAIR/Hetu-Galvatron, `test_parallelsim_optimization` of its search engine, and the profile that is there
in `search_configs`, Apache 2.0: seconds of a layer with 8,192 tokens, MiB that it keeps of a sample, and of
weights. The engine cannot divide measured ops, so a tensor-parallel group of four is one device of four times the
memory: ops take a quarter of the time, and what the group sums up.
"""

from dataclasses import replace
from typing import Any

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from evaluation.studies.published.profiled_chain import MeasuredOp, chain
from evaluation.studies.published.public_planner import MODELLED, Job, Theirs, by_spec, with_memory
from graphs.cluster import Cluster
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import runtime_of

LAYERS, SAMPLES, GPUS, TP = 28, 64, 8, 4
MIB, MEMORY = 2.0**20, 36 * 2.0**30
SECONDS, HEAD, EMBEDDING = 28.454e-3, 46e-3, 10e-3  # forward, of a sample; the backward pass takes twice as long
KEPT, SENT, LOGITS = 2088.3 * MIB, 56 * MIB, 5073 * MIB  # bytes of a sample
WEIGHTS, OUTER = 973.03 * MIB, 16768.5 / 8 * MIB  # bytes of a layer, and of the embedding and the head each
AGAIN = (
    9,
    3,
)  # first layers of each stage that are computed again; of those that it scatters the engine has first ones


def _graph(tp: int = 1, summed: float = 0.0) -> Any:
    """Layers by groups of tp GPUs that sum up twice in each pass of a layer, in so many seconds of a sample."""

    def op(name: str, seconds: float, sent: float, kept: float, weights: float, sums: float = 0.0) -> MeasuredOp:
        forward = seconds / tp
        return MeasuredOp(name, forward + sums, 2 * forward + sums, sent, kept, weights)

    layers = [
        each
        for layer in range(LAYERS)
        for each in (
            op(f"layers.{layer}.block/body", SECONDS, SENT, KEPT - SENT, WEIGHTS / 2, 2 * summed),
            op(f"layers.{layer}.block/end", 0.0, SENT, SENT, WEIGHTS / 2),
        )
    ]
    first, last = op("embedding", EMBEDDING, SENT, SENT, OUTER), op("head", HEAD, SENT, LOGITS, OUTER)
    return chain("llama-28", [first, *layers, last, op("loss", 0.0, 0.0, 0.0, 0.0)], SAMPLES)


def _on(graph: Any, cluster: Cluster) -> Problem:
    return Problem(graph, cluster, "adam", runtime=runtime_of("ideal"))


def problem() -> Problem:
    """Its layers on eight GPUs of 36 GB."""
    return _on(_graph(), with_memory(load_cluster(f"dgx_a100:devices={GPUS}"), MEMORY))


def _of_groups(problem: Problem) -> tuple[Problem, Plan]:
    """Two stages of fourteen layers, each on a group, in 32 micro-batches of two samples."""
    bandwidth = float(problem.cluster.bandwidth[0, 1])
    summed = 2 * (TP - 1) / TP * SENT / bandwidth  # an all-gather and a reduce-scatter
    cluster = with_memory(load_cluster(f"dgx_a100:devices={GPUS // TP}"), TP * MEMORY)
    grouped = replace(_on(_graph(TP, summed), cluster), runtime=problem.runtime)
    layers = Layers.of(grouped, grouped.graph.num_units)
    begins = {block: layers.block.tolist().index(block) for block in range(LAYERS)}
    half = LAYERS // 2
    stages = (
        LayerStage(0, begins[half], (0,), again=begins[AGAIN[0]]),
        LayerStage(begins[half], len(layers), (1,), again=begins[half + AGAIN[1]] - begins[half]),
    )
    return grouped, LayerPipeline(stages, 32).plan(grouped, layers)


JOB = Job(
    "galvatron", "Llama, 28 layers of 4,096 with 8,192 tokens, 64 samples, 8 A100 of 36 GiB",
    "PKU-DAIR/Hetu-Galvatron, test_parallelsim_optimization of its search engine",
    problem,
    (
        Theirs(
            "Galvatron", "pp=2, tp=4, 32 micro-batches, 12 layers computed again", 2.55783, MODELLED, _of_groups
        ),
        Theirs(
            "Galvatron", "FSDP, 8 micro-batches, all layers computed again", 2.50774, MODELLED,
            by_spec("fsdp:recompute=true,micro_batches=8"),
        ),
    ),
    "samples/s", SAMPLES,
    remark="its tensor-parallel groups of four are one device each in the engine, which cannot divide measured ops",
)  # fmt: skip
