"""For llama.cpp's command line: how many layers each GPU has, and the layers whose weights are kept on the CPU.

With all layers offloaded, the shares of --tensor-split are those of the layers and of the output, which counts as one
more; -ot, --override-tensor, keeps tensors by their names elsewhere: those of layer 3 begin with "blk.3.". llama.cpp
always keeps the embedding on the CPU. Sources: load_tensors in src/llama-model.cpp, and block_mappings_cfg, the names
of modules that become "blk.N", in gguf-py/gguf/tensor_mapping.py of ggml-org/llama.cpp.
"""

from __future__ import annotations

import numpy as np

from envs.schedule import WHOLE_BATCH
from evaluation.exports.module_keys import ModuleKeys
from evaluation.exports.row import after, by_layers, layers_of
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError

BLOCKS = (
    "model.layers", "layers", "transformer.h", "h", "transformer.blocks", "transformer.layers", "gpt_neox.layers",
    "encoder.layer", "encoder.layers", "language_model.encoder.layers", "backbone.layers",
)  # fmt: skip
CPU = 0  # its place; those of GPUs follow


def write(keys: ModuleKeys) -> Written:
    r"""`--n-gpu-layers 33 --tensor-split 15,18 -ot 'blk\.(30|31)\.=CPU'`, the GPUs in the order of their layers.

    Raises InputError for layers that llama.cpp does not know, and for a plan of micro-batches.
    """
    keys.check_one_device_each()
    if keys.plan.schedule != WHOLE_BATCH:
        raise InputError("llama_cpp takes op placements only, and this plan has micro-batches or stages; give another")
    layers = layers_of(keys)
    parent = keys.keys[layers[0]].rpartition(".")[0]
    if parent not in BLOCKS:
        raise InputError(
            f"{keys.problem.graph.name!r} has its layers in {parent!r}, and llama.cpp knows them in "
            f"{', '.join(BLOCKS)}; use `to='device_map'`"
        )
    cpus = [number for number, device in enumerate(keys.problem.cluster.devices) if device.kind == "cpu"]
    where = keys.places[layers]
    on_cpu = np.isin(where, cpus)
    gpus = by_layers(where[~on_cpu])
    place = np.full(len(layers), CPU)
    place[~on_cpu] = 1 + np.repeat(np.arange(len(gpus)), [int((where == gpu).sum()) for gpu in gpus])
    places = np.full(len(keys.keys), CPU if cpus else min(1, len(gpus)))
    places[layers], places[after(keys, layers)] = place, len(gpus)
    hosts = (*(cpus[:1] or [0]), *gpus)
    plan = keys.placed(places, tuple((device,) for device in hosts))
    text = f"--n-gpu-layers {len(layers) + 1 if gpus else 0}"
    if gpus:
        share = np.bincount(np.maximum(np.maximum.accumulate(place), 1) - 1, minlength=len(gpus))
        share[-1] += 1  # the output
        text += f" --tensor-split {','.join(map(str, share.tolist()))}"
    if gpus and on_cpu.any():
        numbers = [keys.keys[layers[number]].rpartition(".")[2] for number in np.flatnonzero(on_cpu).tolist()]
        text += rf" -ot 'blk\.({'|'.join(numbers)})\.=CPU'"
    return Written(text, keys.problem, plan)
