"""For vLLM's environment: how many layers each pipeline rank has."""

from __future__ import annotations

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import Row
from evaluation.exports.written import Written


def write(keys: ModuleKeys) -> Written:
    """`VLLM_PP_LAYER_PARTITION=8,9,7`. Raises InputError for a device with several stages, which vLLM has not."""
    row = Row.of(keys)
    row.shape("vllm")
    return row.written("VLLM_PP_LAYER_PARTITION=" + ",".join(map(str, row.counts)))
