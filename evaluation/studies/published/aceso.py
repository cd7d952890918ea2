"""Aceso's answer for GPT-1.3B on four V100, with its own profile.

github.com/microsoft/SuperScaler, branch of Aceso (Liu et al. 2024, "Aceso: Efficient Parallel DNN Training through
Iterative Bottleneck Alleviation"), MIT licence: `profiler/profiled-time-miniset`, micro-batches of one sample without
tensor parallelism. Its layers are alike.
"""

from evaluation.studies.published.profiled_chain import MeasuredOp, chain
from evaluation.studies.published.public_planner import MODELLED, Job, Theirs, with_memory
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import runtime_of

LAYERS, SAMPLES, MEMORY = 24, 1024, 28e9  # bytes of a V100 of 32 GB that Aceso fills
MIB = 2.0**20
Row = tuple[
    str, float, float, float, float, float
]  # name, microseconds forward and back, MiB sent, kept and of weights
FIRST: Row = ("encoder-embedding", 173.631, 1486.725, 8.0, 12.0, 208.0)
LAYER: tuple[Row, ...] = (
    ("enc-1st-layernorm", 43.762, 119.377, 16.0, 8.016, 0.0),
    ("enc-attention-qkv", 708.879, 1296.924, 32.0, 24.0, 24.0),
    ("enc-attention-score", 531.875, 1127.807, 272.0, 256.0, 0.0),
    ("enc-attention-softmax", 610.657, 837.961, 272.0, 256.0, 0.0),
    ("enc-attention-dropout", 957.26, 826.848, 272.0, 384.0, 0.0),
    ("enc-attention-context", 638.769, 899.239, 16.0, 8.0, 0.0),
    ("enc-attention-dense", 230.813, 444.943, 16.004, 8.0, 8.0),
    ("enc-post-attention-dropout", 100.067, 76.482, 8.0, 12.0, 0.0),
    ("enc-2nd-layernorm", 42.201, 120.645, 16.0, 8.016, 0.0),
    ("enc-MLP-GEMM-1", 866.761, 1476.009, 40.016, 32.0, 32.0),
    ("enc-MLP-gelu", 94.056, 192.648, 40.0, 32.0, 0.0),
    ("enc-MLP-GEMM-2", 852.051, 1598.179, 16.004, 8.0, 32.0),
    ("enc-post-MLP-dropout", 99.375, 78.251, 8.0, 12.0, 0.0),
)
LAST: tuple[Row, ...] = (
    ("final-layernorm", 46.19, 942.417, 8.0, 8.016, 0.0),
    ("gpt-post-process", 9476.845, 10278.254, 0.0, 400.025, 200.0),
)


def _op(row: Row, prefix: str = "") -> MeasuredOp:
    name, forward, backward, sent, kept, weights = row
    return MeasuredOp(prefix + name, forward * 1e-6, backward * 1e-6, sent * MIB, kept * MIB, weights * MIB)


def problem() -> Problem:
    """Its ops on four V100 joined by NVLink."""
    ops = [_op(FIRST), *(_op(row, f"layers.{layer}.") for layer in range(LAYERS) for row in LAYER), *map(_op, LAST)]
    cluster = with_memory(load_cluster("v100:devices=4"), MEMORY)
    return Problem(chain("gpt-1.3b", ops, SAMPLES), cluster, runtime=runtime_of("ideal"))


JOB = Job(
    "aceso", "GPT-1.3B, 1,024 samples, 4 V100 of 28 GB", "microsoft/SuperScaler, branch of Aceso, with its profile",
    problem,
    (
        Theirs("Aceso", "four stages, 6 of 315 ops computed again", 100.28),
        Theirs("Aceso", "the same", 101.21, MODELLED),
    ),
    remark="which ops are in which stage was not found, so it is not run in the engine",
)  # fmt: skip
