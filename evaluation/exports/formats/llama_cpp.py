"""For llama.cpp's command line: on which GPU each layer is, and whose weights are kept elsewhere.

The layers and the output, one slot more, go to devices in order. All slots but the last --n-gpu-layers are the CPU's.
The others are dealt out to the GPUs in the order of --device, which is llama.cpp's own unless given, each as many as
its share in --tensor-split, which may be none. -ot, --override-tensor, keeps tensors by their names elsewhere: those of
layer 3 begin with "blk.3.", and "output.weight" is that of the output. llama.cpp always keeps the embedding on the CPU.

Sources: load_tensors in src/llama-model.cpp, which assigns slots, and block_mappings_cfg, the names of modules that
become "blk.N", in gguf-py/gguf/tensor_mapping.py of ggml-org/llama.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from envs.plans.schedule import WHOLE_BATCH
from evaluation.exports.layer_rows import after, by_layers, check_equal, layers_of
from evaluation.exports.module_keys import WITH_ONE_DEVICE_EACH, ModuleKeys
from evaluation.exports.written import Written
from graphs.foundation.errors import InputError, listed
from graphs.op_graph import Bools

BLOCKS = (
    "model.layers", "layers", "transformer.h", "h", "transformer.blocks", "transformer.layers", "gpt_neox.layers",
    "encoder.layer", "encoder.layers", "language_model.encoder.layers", "backbone.layers",
)  # fmt: skip


def write(keys: ModuleKeys) -> Written:
    r"""`--n-gpu-layers 33 --tensor-split 15,0,18 -ot 'blk\.(30|31)\.=CPU'`, a share for each GPU of the cluster.

    Raises InputError for layers that llama.cpp does not know, and for a plan of micro-batches.
    """
    if keys.plan.schedule != WHOLE_BATCH:
        raise InputError(
            f"llama_cpp takes op placements only, and this plan has micro-batches or stages; {WITH_ONE_DEVICE_EACH}"
        )
    layers = layers_of(keys)
    parent = keys.keys[layers[0]].rpartition(".")[0]
    if parent not in BLOCKS:
        raise InputError(
            f"{keys.problem.graph.name!r} has its layers in {parent!r}, and llama.cpp knows them in "
            f"{', '.join(BLOCKS)}; use `to='device_map'`"
        )
    check_equal(keys, layers, "llama_cpp")
    last = after(keys, layers)
    output = _output(keys, last)
    planned = keys.places[layers].tolist()
    planned.append(int(keys.places[output]) if output >= 0 else planned[-1])
    cpus = [number for number, device in enumerate(keys.problem.cluster.devices) if device.kind == "cpu"]
    slots = _Slots.of([-1 if each in cpus else each for each in planned])
    places = keys.places.copy()
    first = np.ones(len(places), np.bool_)
    first[layers], first[last] = False, False
    places[first] = cpus[0] if cpus else planned[0]  # what is not there is simulated with the first layer
    on_cpu = cpus[0] if cpus else 0
    places[layers] = [on_cpu if card < 0 else card for card in slots.planned[:-1]]
    places[last] = on_cpu if slots.assigned[-1] < 0 else slots.assigned[-1]  # with the output, as its norm is
    if output >= 0:
        places[output] = on_cpu if slots.planned[-1] < 0 else slots.planned[-1]
    return keys.written(slots.text(keys.gpu_numbers), places, notes=_notes(keys, slots, first, cpus))


@dataclass(frozen=True)
class _Slots:
    """The layers, and then the output: where a plan has each, by devices, and -1 for the CPU."""

    planned: list[int]
    order: list[int]  # the GPUs in the order in which slots are dealt out
    shares: list[int]  # slots of each of these
    on_cpu: int  # how many slots are not dealt out: the first ones

    @classmethod
    def of(cls, planned: list[int]) -> _Slots:
        """The shares of all GPUs that follow from a plan: exact if each has slots that follow one another."""
        on_cpu = next((slot for slot, card in enumerate(planned) if card >= 0), len(planned))
        cards = planned[on_cpu:]
        for slot in range(1, len(cards)):  # one whose weights are kept on the CPU counts for the GPU before
            cards[slot] = cards[slot - 1] if cards[slot] < 0 else cards[slot]
        order = [card for card, _ in groupby(cards)]
        order = order if len(set(order)) == len(order) else by_layers(np.array(cards))
        return cls(planned, order, [cards.count(card) for card in order], on_cpu)

    @property
    def assigned(self) -> list[int]:
        """Where each slot is by --n-gpu-layers, --device and --tensor-split alone."""
        return [-1] * self.on_cpu + [card for card, share in zip(self.order, self.shares, strict=True)
                                     for _ in range(share)]  # fmt: skip

    @property
    def elsewhere(self) -> dict[int, list[int]]:
        """By where their weights are kept, the slots that are assigned to another place."""
        found: dict[int, list[int]] = {}
        for slot, (card, assigned) in enumerate(zip(self.planned, self.assigned, strict=True)):
            if card != assigned:
                found.setdefault(card, []).append(slot)
        return found

    def text(self, numbers: dict[int, int]) -> str:
        """The arguments; `numbers` has llama.cpp's number of each GPU."""
        said = [f"--n-gpu-layers {len(self.planned) - self.on_cpu}"]
        shares = dict(zip(self.order, self.shares, strict=True))
        if any(numbers[one] > numbers[other] for one, other in pairwise(self.order)):
            said.append(f"--device {','.join(f'CUDA{numbers[card]}' for card in self.order)}")
            said.append(f"--tensor-split {','.join(map(str, self.shares))}")
        elif self.order:
            said.append(f"--tensor-split {','.join(str(shares.get(card, 0)) for card in numbers)}")
        if self.elsewhere:
            patterns = [_pattern(slots, card, len(self.planned) - 1, numbers) for card, slots in self.elsewhere.items()]
            said.append(f"-ot '{','.join(patterns)}'")
        return " ".join(said)


def _pattern(slots: Sequence[int], card: int, output: int, numbers: dict[int, int]) -> str:
    place = "CPU" if card < 0 else f"CUDA{numbers[card]}"
    layers = [str(slot) for slot in slots if slot != output]
    texts = [rf"blk\.({'|'.join(layers)})\.={place}"] if layers else []
    return ",".join([*texts, *([rf"^output\.weight={place}"] if output in slots else [])])


def _output(keys: ModuleKeys, last: Bools) -> int:
    """The number of the module with the most weights among the last ones, which is the output; -1 if none has any."""
    sizes = keys.weight_bytes * last
    return int(sizes.argmax()) if sizes.any() else -1


def _notes(keys: ModuleKeys, slots: _Slots, first: Bools, cpus: list[int]) -> tuple[str, ...]:
    """What the arguments take for granted, and what they do not keep."""
    names = [device.name for device in keys.problem.cluster.devices]
    numbers, said = keys.gpu_numbers, list[str]()
    if len(numbers) > 1 and slots.order:
        which = listed([f"CUDA{number} is {names[gpu]}" for gpu, number in numbers.items()], 8)
        said.append(
            f"{which}: see that `llama-server --list-devices` counts them so, as with CUDA_DEVICE_ORDER=PCI_BUS_ID and "
            "CUDA_VISIBLE_DEVICES."
        )
    if not cpus and keys.weight_bytes[first].any():
        said.append(
            "llama.cpp keeps the embedding on the CPU; the cluster has none, so that it is simulated with the first "
            "layer."
        )
    moved = [slot for several in slots.elsewhere.values() for slot in several if slot < len(slots.planned) - 1]
    if moved:
        where = listed([f"{slot} on {names[slots.assigned[slot]]}" for slot in sorted(moved)])
        said.append(f"The key-value caches of layers stay where --tensor-split puts them: {where}.")
    return tuple(said)
