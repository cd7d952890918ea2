"""For DeepSpeed's PipelineModule: where in its list of layers each stage begins, and the last one ends.

PipelineModule balances parts by itself; a list of them is given by a class derived from it, whose _partition_layers
sets self.parts and calls self._set_bounds. Source: deepspeed/runtime/pipe/module.py of deepspeedai/DeepSpeed.
"""

import json
from itertools import accumulate

import numpy as np

from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import LayerRow
from evaluation.exports.written import Written


def write(keys: ModuleKeys) -> Written:
    """`{"parts": [0, 3, 7], "layers": ["words", "layers.0", ...]}`: the layers are modules as they are called.

    Raises InputError for a device with several stages, which DeepSpeed has not.
    """
    row = LayerRow.of(keys, "deepspeed")
    row.shape("deepspeed")
    order = np.lexsort((np.arange(len(keys.keys)), keys.first_op, row.piece))
    layers = [keys.keys[number] for number in order.tolist() if number >= keys.modules.tensors]
    parts = [0, *accumulate(len(part) for part in row.parts)]
    return row.written(json.dumps({"parts": parts, "layers": layers}))
