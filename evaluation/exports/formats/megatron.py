"""For Megatron's --pipeline-model-parallel-layout: E is the embedding, t a layer, L the loss, | ends a stage.

The stages of virtual pipeline ranks follow those of all ranks before: of 4 stages the third is on the first rank again,
if --pipeline-model-parallel-size is 2. A stage may be empty. Source: PipelineParallelLayerLayout in
megatron/core/transformer/pipeline_parallel_layer_layout.py of NVIDIA/Megatron-LM.
"""

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written


def write(keys: ModuleKeys) -> Written:
    """`Ett|tttL`. Raises InputError for stages that do not go to one device after the other, over and over again."""
    row = LayerRow.of(keys, "megatron", equal=True)
    row.shape("megatron", several=True)
    return row.written("E" + "|".join("t" * count for count in row.counts) + "L")
