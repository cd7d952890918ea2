"""torchtitan's automatic partition: Llama 3 of twelve layers on four RTX 3090, measured with and without it.

github.com/pytorch/torchtitan, pull request 2113: 28.0% and 28.9% more tokens per second by moving layers to where the
output layer is not. How many samples and tokens a step has is not said: eight and 2,048 are torchtitan's defaults. Nor
is where it cuts: theirs is the partition into whole layers whose slowest stage has fewest FLOPs, as it says of itself.
"""

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement, pairwise

from evaluation.studies.problems import model_problem
from evaluation.studies.published.public_planner import Job, Theirs, by_spec
from graphs.problem import Problem

LAYERS, GPUS, SAMPLES, TOKENS, VOCABULARY = 12, 4, 8, 2048, 128256
BY_DEFAULT = (3, 4, 3, 2)  # layers: the embedding and the output layer count as one each
INNER = {2048: 7168, 4096: 14336}  # by width, with ffn_dim_multiplier 1.3 in multiples of 1,024
HEADS, KV_HEADS = 128, 8  # channels of a head; heads of keys and values
PRINTED = {2048: (3348, 2616), 4096: (981, 761)}  # tokens per second of each GPU: moved, by default


def problem(width: int) -> Problem:
    """The model on four RTX 3090 on PCIe 4.0."""
    model = (
        f"llama:layers={LAYERS},width={width},heads={width // HEADS},kv_heads={KV_HEADS},inner={INNER[width]},"
        f"sequence={TOKENS},batch={SAMPLES},vocabulary={VOCABULARY},attention=sdpa"
    )
    cluster = f"mixed:servers=rtx3090x{GPUS},link=pcie4x16"
    return model_problem(model, cluster, f"llama3-{width}@3090", runtime="torch-pipelining", precision="bf16-mixed")


def balanced(width: int) -> tuple[int, ...]:
    """Layers of each stage, the last of which has the output layer as well; such that the slowest is fastest."""
    keys = KV_HEADS * HEADS
    layer = 2 * width * (width + keys) + 3 * width * INNER[width] + TOKENS * width  # products of a token
    output = VOCABULARY * width

    def slowest(counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            sorted((layer * count + output * (at == GPUS - 1) for at, count in enumerate(counts)), reverse=True)
        )

    return min(_partitions(), key=slowest)


def _partitions() -> Iterator[tuple[int, ...]]:
    for cuts in combinations_with_replacement(range(LAYERS + 1), GPUS - 1):
        counts = tuple(end - begin for begin, end in pairwise((0, *cuts, LAYERS)))
        if all(counts[:-1]):
            yield counts


def spec(counts: tuple[int, ...]) -> str:
    """1F1B of these stages."""
    ends = [sum(counts[:at]) for at in range(1, GPUS)]
    begins = "+".join("norm" if end == LAYERS else f"layers.{end}" for end in ends)
    return f"parallel:pp={GPUS},micro_batches={SAMPLES},stages={begins}"


def _job(width: int) -> Job:
    moved, usual = balanced(width), BY_DEFAULT
    tokens = PRINTED[width]
    return Job(
        f"torchtitan-{width}", f"Llama 3, 12 layers of {width:,}, {SAMPLES} samples of {TOKENS:,} tokens, 4 RTX 3090",
        "pytorch/torchtitan, pull request 2113", partial(problem, width),
        (
            Theirs("torchtitan", f"layers {':'.join(map(str, moved))}, moved", tokens[0], placed=by_spec(spec(moved))),
            Theirs("torchtitan", f"layers {':'.join(map(str, usual))}", tokens[1], placed=by_spec(spec(usual))),
        ),
        "tokens/s per GPU", SAMPLES * TOKENS / GPUS,
        remark="batch and cuts are not said: torchtitan's default, and cuts whose slowest stage has fewest FLOPs",
    )  # fmt: skip


JOBS = tuple(_job(width) for width in PRINTED)
