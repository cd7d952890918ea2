"""Mist's example: GPT-2 1.3B on two L4, tuned and measured.

Zhu et al. (2025), "Mist: Efficient Distributed Training of Large Language Models via Memory-Parallelism
Co-Optimization", github.com/Dazz993/Mist, README.md, steps 2.3 to 2.5, and benchmark/mist/configs/test-small-base.yaml:
FP16 without flash attention, 22.488 GB of memory, and 2.964 GB/s from one GPU to the other.
"""

from dataclasses import replace

import numpy as np

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from evaluation.studies.problems import model_problem
from evaluation.studies.published.public_planner import Job, Theirs, by_spec, with_memory
from graphs.problem import Problem

MODEL = "transformer:layers=24,width=2048,heads=16,sequence=2048,batch=32,vocabulary=50304"
CLUSTER = "mixed:servers=l4x2,link=pcie4x16"
BANDWIDTH, MEMORY = 2.964e9, 22.488e9  # bytes per second, bytes
HALF, AGAIN = 12, 5  # layers of a stage, and of the first stage those that are computed again


def problem() -> Problem:
    """The model on two L4."""
    found = model_problem(MODEL, CLUSTER, "gpt2-1.3b@2 L4", runtime="megatron", precision="fp16")
    cluster = with_memory(found.cluster, MEMORY)
    joined = np.where(np.isfinite(cluster.bandwidth), BANDWIDTH, cluster.bandwidth)
    return replace(found, cluster=replace(cluster, bandwidth=joined))


def _tuned(problem: Problem) -> tuple[Problem, Plan]:
    """Two stages of twelve layers in sixteen micro-batches, five layers of the first one computed again."""
    layers = Layers.of(problem, problem.graph.num_units)
    blocks = layers.block.tolist()
    cut = blocks.index(HALF)
    stages = (LayerStage(0, cut, (0,), again=blocks.index(AGAIN)), LayerStage(cut, len(layers), (1,)))
    return problem, LayerPipeline(stages, 16).plan(problem, layers)


JOB = Job(
    "mist", "GPT-2 1.3B, 2,048 tokens, 32 samples, 2 L4", "Dazz993/Mist, README.md, steps 2.3 to 2.5",
    problem,
    (
        Theirs("Mist", "two stages, 16 micro-batches, 5 layers computed again", 9.9345, placed=_tuned),
        Theirs(
            "Megatron-LM", "two replicas, 2 micro-batches, all layers computed again, ZeRO 1", 11.329,
            placed=by_spec("parallel:dp=2,micro_batches=2,recompute=true,zero=1"),
        ),
    ),
)  # fmt: skip
