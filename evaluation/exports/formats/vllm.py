"""For vLLM's environment: how many layers each pipeline rank has."""

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError


def write(keys: ModuleKeys) -> Written:
    """`VLLM_PP_LAYER_PARTITION=8,9,7`.

    Raises InputError for a device with several stages, and a stage without layers, which vLLM has not.
    """
    row = LayerRow.of(keys, "vllm", equal=True)
    row.shape("vllm")
    if 0 in row.counts:
        raise InputError(
            f"vllm takes at least one layer on each device, and this plan has {row.counts}; plan for fewer devices"
        )
    return row.written("VLLM_PP_LAYER_PARTITION=" + ",".join(map(str, row.counts)))
