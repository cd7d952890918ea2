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
