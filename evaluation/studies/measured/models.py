"""Models: which model of a family a measured row ran, with the operations that its framework computes it in.

What a source leaves open is decided by its framework, here and nowhere else:

- Dropout that is not said is Megatron-LM's default, 0.1: all such rows ran it, or DeepSpeed's copy of it.
- Scores that are masked and normalised by one kernel are those of Megatron-LM in half precision. Without that kernel,
  which takes no float32, and in transformers and NVIDIA's BERT, each step is a kernel.
- Megatron-LM pads the vocabulary to a multiple of 128 words on each device. Those of vTrain's steps whose head is not
  divided are as they are said: only products of unaligned matrices are as slow as theirs.
- `torch.compile` makes one kernel of what is element by element, so that eager GELU, masks and softmax are one each.
- OPT drops no weights of attention: its configuration in transformers says `attention_dropout` 0.0 (`OPTConfig`).
- BERT, and OPT in transformers, compute queries, keys and values by products of their own, Megatron-LM by a joint one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate

from evaluation.studies.measured.rows import FITTED, Row

_SIZES = "layers={r.layers},width={r.hidden},heads={r.heads},sequence={r.sequence}"
FAMILIES = {
    "gpt": f"transformer:{_SIZES},vocabulary={{words}},tied={{tied}}",
    "bert": f"bert:{_SIZES}",
    "llama": f"llama:{_SIZES},inner={{r.ffn}},vocabulary={{words}}",
    "resnet": "resnet:layers={r.layers},image={r.image}",
    "amoebanet": "amoebanet:layers={r.layers},filters={r.hidden},image={r.image}",
}
CHAINS = ("gpt", "bert", "llama")  # of equal blocks
MEGATRONS_DROPOUT = 0.1  # --hidden-dropout and --attention-dropout
PADDED = 128  # --make-vocab-size-divisible-by, on each device

# torchgpipe's bottleneck is a sequence: an identity, whose output skips the block, three times a convolution, norm and
# ReLU, with a residual before the last ReLU, which has no one name here. Ours are these modules and functions.
TORCHGPIPES_BLOCK = (
    ".reduce", ".reduce", ".reduce_norm", "/relu_{first}", ".mix", ".mix_norm", "/relu_{second}", ".expand",
    ".expand_norm", "", "/relu_{third}",
)  # fmt: skip


def model_of(row: Row) -> str:
    """The spec of its family, without the batch."""
    sizes = FAMILIES[row.kind].format(r=row, words=_words(row), tied="true" if row.tied == "yes" else "false")
    knobs = _layer_knobs(row) if row.kind in CHAINS else ()
    return ",".join([sizes, *(f"{key}={value}" for key, value in knobs)])


def _words(row: Row) -> int:
    """Of the vocabulary, with those that are there for alignment."""
    is_padded = "Megatron" in row.framework and not (row.source == FITTED and row.tp == 1)
    return math.ceil(row.vocabulary / (PADDED * row.tp)) * PADDED * row.tp if is_padded else row.vocabulary


def _layer_knobs(row: Row) -> Iterator[tuple[str, object]]:
    if row.kind != "llama" and row.ffn not in (0, 4 * row.hidden):
        yield "inner", row.ffn
    if row.kv_heads not in (0, row.heads):
        yield "kv_heads", row.kv_heads
    if way := _attention(row):
        yield "attention", way
    if row.kind == "llama":
        return
    if dropout := MEGATRONS_DROPOUT if row.dropout.startswith("not said") else float(row.dropout or 0.0):
        yield "dropout", dropout
        if row.model.startswith("OPT"):
            yield "attention_dropout", "false"
    if row.activation in ("gelu_new", "relu") and not (row.is_compiled and row.activation == "gelu_new"):
        yield "activation", row.activation
    if row.kind == "bert" or ("OPT" in row.model and "transformers" in row.framework):
        yield "separate", "true"
    if "no vocabulary head" in row.notes:
        yield "classes", 2


def _attention(row: Row) -> str:
    """How attention is computed; "" where nothing is said."""
    if "flash" in row.attention:
        return "sdpa"
    if "fused softmax" in row.attention or (row.attention and row.is_compiled):
        return "megatron"
    return "eager" if row.attention else ""


# ---- stages that the source cut by hand ------------------------------------------------------------------------------


def stages_of(row: Row) -> str:
    """As `parallel` and `gpipe` take them; "" if they are not said, or if all have equally many blocks."""
    said = row.stage_layers.split()  # numbers, or in words that all have as many
    counts = [int(each) for each in said] if all(map(str.isdigit, said)) else []
    if len(counts) < 2:
        return ""
    if row.kind == "resnet":
        return _begins(counts)
    return _blocks(row, counts) if row.kind in CHAINS else ""


def _blocks(row: Row, counts: list[int]) -> str:
    """How many blocks each stage has; the source counts embedding and head as well."""
    if sum(counts) != row.layers + 2:
        return ""
    counts[0], counts[-1] = counts[0] - 1, counts[-1] - 1
    return "" if len(set(counts)) == 1 else "+".join(map(str, counts))


def _begins(counts: list[int]) -> str:
    """Where in our ResNet stages of so many of torchgpipe's modules begin; "" if it has no name there."""
    names = ["stem", "stem_norm", "relu", "max_pool2d_with_indices"]
    for block in range((sum(counts) - 7) // len(TORCHGPIPES_BLOCK)):  # these four are before blocks, three behind
        relus = {name: 3 * block + number for number, name in enumerate(("first", "second", "third"), 1)}
        names += [name and f"blocks.{block}{name.format(**relus)}" for name in TORCHGPIPES_BLOCK]
    names += ["mean", "", "classifier"]
    begins = [names[number] for number in accumulate(counts[:-1])]
    return "+".join(begins) if all(begins) else ""
