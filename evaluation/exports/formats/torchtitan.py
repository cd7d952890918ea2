"""For torchtitan's module_fqns_per_model_part: the modules of each stage, by name, in the order of the stages.

Stages go to one rank after the other, over and over again; with its schedules ZBVZeroBubble and DualPipeV, to all ranks
and back. Source: pipeline_module_split in torchtitan/distributed/pipeline_parallel.py of pytorch/torchtitan.
"""

import json

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written

V = ("zb_v", "dualpipe_v", "v_half", "v_min")  # orders of passes whose stages go back and forth


def write(keys: ModuleKeys) -> Written:
    """`[["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]]`.

    Raises InputError for stages that are on other ranks than torchtitan puts them on.
    """
    row = LayerRow.of(keys, "torchtitan")
    row.shape("torchtitan", several=True, is_v=keys.plan.schedule.order.name.partition(":")[0] in V)
    return row.written(json.dumps(row.parts))
