"""Sailor's simulator: how long a step of OPT-350M takes as pipelines of equal replicas, and whether it fits.

After `sailor/Planner/simulations/runtime_simulator.py` of github.com/eth-easl/sailor (Strati et al. 2025, section 4.2),
MIT licence. Its times are those of layers, measured for each kind of GPU, degree of tensor parallelism and size of
micro-batches; its bandwidths are polynomials of the logarithm of a message's size, measured between machines. Computing
and sending never overlap there, and the slowest stage counts once for each micro-batch but the first:

    (micro-batches - 1) max(compute + send) + sum(compute + send) + update + all-reduce
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphs.foundation.errors import InputError

MODEL, BATCH = "OPT-350", 1024  # simulations/configs/training_config_opt_350.json
BLOCKS = 24  # between the embedding and the head
LAYERS = BLOCKS + 2
FLOAT = 4.0  # bytes
BYTES_PER_PARAMETER = 24  # weight, gradient, Adam's moments, a buffer and a copy of DeepSpeed
LOADED, LOADED_DIVIDED = 2e9, 3e9  # bytes of kernels without tensor parallelism, and with it
BUCKET = 5e8  # bytes that are summed up together
MEMORY = {"A100-40": 40, "V100-16": 16, "GH-96": 96}  # GiB, simulations/constants.py
PER_SERVER = 4
# of the embedding, a block and the head, by the degree of tensor parallelism: sailor/Planner/llm_info.json
PARAMETERS = {
    1: (53608448, 12596224, 51513344), 2: (27918336, 6301184, 25823232), 4: (15073280, 3153664, 12978176),
}  # fmt: skip
ACTIVATIONS = {  # numbers of a sample that are kept for the backward pass
    1: (2097152, 90181632, 208673536), 2: (2101760, 48238592, 105913088), 4: (2101760, 27267072, 54532864),
}  # fmt: skip
OUTPUTS = (2097152, 2097152, 103022593)  # numbers of a sample that leave a layer

Measured = tuple[float, float, float]  # seconds: forward, backward, update


class Stage(NamedTuple):
    """Layers on equal replicas."""

    layers: range
    gpu: str
    tp: int  # GPUs of each replica


class Pipeline(NamedTuple):
    """Stages, each with as many replicas."""

    stages: tuple[Stage, ...]
    replicas: int
    samples: int  # of a micro-batch, on each replica

    @property
    def text(self) -> str:
        """Layers of each stage, its GPUs and their tensor parallelism."""
        stages = ", ".join(f"{len(each.layers)} on {each.gpu} x {each.tp}" for each in self.stages)
        return f"{self.replicas} x ({stages}), {self.samples} samples"


def kind_of(layer: int) -> int:
    """0 for the embedding, 1 for a block, 2 for the head."""
    return 0 if layer == 0 else 2 if layer == LAYERS - 1 else 1


@dataclass(frozen=True)
class SailorSimulator:
    """Times of layers, and polynomials of bandwidths in GB/s, from `layers.csv` and `links.csv` of a folder."""

    times: Mapping[tuple[str, int, int], Sequence[Measured]]  # by GPU, tensor parallelism, samples: of each layer
    links: Mapping[tuple[str, int], tuple[float, float, float]]  # by GPU, and how many of a machine send
    batch: int = BATCH  # samples of a step

    @classmethod
    def of(cls, folder: Path) -> "SailorSimulator":
        """Raises InputError for a folder without these files."""
        rows: dict[tuple[str, int, int], dict[int, Measured]] = {}
        for row in _rows(folder / "layers.csv"):
            if row["model"] == MODEL:
                seconds = (float(row["forward_s"]), float(row["backward_s"]), float(row["update_s"]))
                key = row["gpu"], int(row["tp"]), int(row["micro_batch"])
                rows.setdefault(key, {})[int(row["layer"])] = seconds
        as_measured = [*(min(layer, 2) for layer in range(BLOCKS + 1)), BLOCKS + 1]  # further blocks are as the second
        times = {key: [given[layer] for layer in as_measured] for key, given in rows.items()}
        links = {
            (row["gpu"], int(row["gpus"])): (float(row["a"]), float(row["b"]), float(row["c"]))
            for row in _rows(folder / "links.csv") if row["where"] == "inter"
        }  # fmt: skip
        return cls(times, links)

    def seconds(self, pipeline: Pipeline) -> float:
        """Of a step; infinite if it does not fit, or was not measured."""
        stages, samples = pipeline.stages, pipeline.samples
        if any((each.gpu, each.tp, samples) not in self.times for each in stages) or not self._fits(pipeline):
            return math.inf
        measured = [[self.times[each.gpu, each.tp, samples][layer] for layer in each.layers] for each in stages]
        compute = [sum(forward + backward for forward, backward, _ in some) for some in measured]
        send = self._sends(pipeline)
        slowest = max(one + other for one, other in zip(compute, send, strict=True))
        turns = math.ceil(self.batch / (samples * pipeline.replicas)) - 1
        update = max(some[0][2] for some in measured)
        summed = max(self._all_reduce(each, pipeline.replicas) for each in stages)
        return turns * slowest + sum(send) + sum(compute) + update + summed

    def transfer(self, size: float, gpu: str, gpus: int = 1) -> float:
        """Seconds that bytes take between machines, by so many GPUs of each."""
        doubled = math.log2(size / 1e6)
        square, linear, constant = self.links[gpu, gpus]
        return size / 1e9 / (square * doubled**2 + linear * doubled + constant)

    def _fits(self, pipeline: Pipeline) -> bool:
        for after, stage in zip(range(len(pipeline.stages), 0, -1), pipeline.stages, strict=True):
            kinds = [kind_of(layer) for layer in stage.layers]
            kept = sum(ACTIVATIONS[stage.tp][kind] for kind in kinds) * pipeline.samples * FLOAT
            held = BYTES_PER_PARAMETER * sum(PARAMETERS[stage.tp][kind] for kind in kinds)
            if held + kept * after + (LOADED if stage.tp == 1 else LOADED_DIVIDED) > MEMORY[stage.gpu] * 2**30:
                return False
        return True

    def _sends(self, pipeline: Pipeline) -> list[float]:
        """Of each stage, for a micro-batch: what it sends on and back; the ends count double, as there."""
        stages, last = pipeline.stages, len(pipeline.stages) - 1
        if not last:
            return [0.0]

        def between(one: Stage, other: Stage, layer: int) -> float:
            size = OUTPUTS[kind_of(layer)] * FLOAT * pipeline.samples
            return max(self.transfer(size, each.gpu, each.tp) for each in (one, other))

        sent = []
        for at, stage in enumerate(stages):
            on = between(stage, stages[at + 1], stage.layers[-1]) if at < last else 0.0
            back = between(stage, stages[at - 1], stage.layers[0]) if at else 0.0
            if at == last:
                sent.append(2 * back)
            else:
                sent.append(on + back if at or last <= 2 else 2 * on)
        return sent

    def _all_reduce(self, stage: Stage, replicas: int) -> float:
        if replicas == 1:
            return 0.0
        left, seconds = sum(PARAMETERS[1][kind_of(layer)] for layer in stage.layers) * FLOAT / min(4, stage.tp), 0.0
        while left > 0:
            bucket = min(left, BUCKET)
            seconds += 2 * (replicas - 1) * self.transfer(bucket / replicas, stage.gpu)
            left -= bucket
        return seconds


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise InputError(f"{path} is missing; --data is a folder with Sailor's layers.csv and links.csv")
    with path.open() as file:
        return list(csv.DictReader(file))
