"""Sailor's simulator: how long a step of OPT-350M takes as replicas of a pipeline, and whether it fits.

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
from functools import cached_property
from itertools import accumulate, product
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

CENTRAL, WEST = "us-central1", "us-west1"
ZONES = {"us-central1-a": CENTRAL, "us-west1-b": WEST}  # those whose links stand for their region's
# A100s of us-central1-a to us-west1-b, by how many of a machine send: providers/gcp/multizone_bandwidths_het.json
BETWEEN_REGIONS = {
    1: (-0.00264623, 0.0478963, 0.20738), 2: (-0.00144762, 0.0509, 0.326366), 4: (-0.000408921, 0.0561612, 0.375974),
}  # fmt: skip

Measured = tuple[float, float, float]  # seconds: forward, backward, update
Fit = tuple[float, float, float]  # GB/s, a polynomial of the logarithm of megabytes


class Pool(NamedTuple):
    """GPUs of one kind in a region."""

    gpu: str
    region: str = CENTRAL

    @property
    def text(self) -> str:
        """The kind, and the region if it is another than that of most."""
        return self.gpu if self.region == CENTRAL else f"{self.gpu} in {self.region}"


class Group(NamedTuple):
    """The GPUs of a tensor-parallel replica."""

    pool: Pool
    tp: int

    @property
    def text(self) -> str:
        """The pool and how many."""
        return f"{self.pool.text} x {self.tp}"


class Stage(NamedTuple):
    """Layers, and the groups that its replicas have: one kind, or a mixture of several."""

    layers: range
    groups: tuple[Group, ...]


class Pipeline(NamedTuple):
    """Stages, each with as many replicas."""

    stages: tuple[Stage, ...]
    replicas: int
    samples: int  # of a micro-batch, on each replica

    @property
    def text(self) -> str:
        """Layers of each stage, its GPUs and their tensor parallelism."""
        stages = ", ".join(
            f"{len(each.layers)} on {' and '.join(group.text for group in each.groups)}" for each in self.stages
        )
        return f"{self.replicas} x ({stages}), {self.samples} samples"


def kind_of(layer: int) -> int:
    """0 for the embedding, 1 for a block, 2 for the head."""
    return 0 if layer == 0 else 2 if layer == LAYERS - 1 else 1


@dataclass(frozen=True)
class SailorSimulator:
    """Times of layers, and polynomials of bandwidths in GB/s, from `layers.csv` and `links.csv` of a folder."""

    times: Mapping[tuple[str, int, int], Sequence[Measured]]  # by GPU, tensor parallelism, samples: of each layer
    links: Mapping[tuple[Pool, int], Fit]  # between machines of a region, by how many GPUs of a machine send
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
            (Pool(row["gpu"], ZONES[zone]), int(row["gpus"].partition(">")[0])): (
                float(row["a"]), float(row["b"]), float(row["c"]),
            )
            for row in _rows(folder / "links.csv")
            if row["where"] == "between nodes" and (zone := row["key"].partition(".")[0]) in ZONES
        }  # fmt: skip
        return cls(times, links)

    def seconds(self, pipeline: Pipeline, *, sends: bool = True) -> float:
        """Of a step, with what stages send or without; infinite if it does not fit, or was not measured."""
        stages, samples = pipeline.stages, pipeline.samples
        groups = [group for stage in stages for group in stage.groups]
        if any((pool.gpu, tp, samples) not in self.times for pool, tp in groups) or not self._fits(pipeline):
            return math.inf
        compute = [max(self.compute(stage.layers, group, samples) for group in stage.groups) for stage in stages]
        send = self._sends(pipeline) if sends else [0.0] * len(stages)
        slowest = max(one + other for one, other in zip(compute, send, strict=True))
        update = max(
            self.times[pool.gpu, tp, samples][stage.layers[0]][2] for stage in stages for pool, tp in stage.groups
        )
        summed = max(self.all_reduce(each, pipeline.replicas) for each in stages)
        return (self.micro_batches(pipeline) - 1) * slowest + sum(send) + sum(compute) + update + summed

    def micro_batches(self, pipeline: Pipeline) -> int:
        """Of each replica; the last ones may be more than the batch has."""
        return math.ceil(self.batch / (pipeline.samples * pipeline.replicas))

    def compute(self, layers: range, group: Group, samples: int) -> float:
        """Seconds of layers, forward and backward."""
        until = self._seconds_until[group.pool.gpu, group.tp, samples]
        return until[layers.stop] - until[layers.start]

    def transfer(self, size: float, one: Group, other: Group) -> float:
        """Seconds that bytes take between two machines."""
        if one.pool.region != other.pool.region:
            return _seconds(size, BETWEEN_REGIONS[min(one.tp, other.tp)])
        return max(_seconds(size, self.links[each]) for each in (one, other))

    def room(self, group: Group) -> float:
        """Bytes of each of its GPUs, without what is loaded there."""
        return MEMORY[group.pool.gpu] * 2.0**30 - (LOADED if group.tp == 1 else LOADED_DIVIDED)

    def _fits(self, pipeline: Pipeline) -> bool:
        return all(
            held_bytes(stage.layers, group.tp, pipeline.samples, kept) <= self.room(group)
            for kept, stage in zip(range(len(pipeline.stages), 0, -1), pipeline.stages, strict=True)
            for group in stage.groups
        )

    def _sends(self, pipeline: Pipeline) -> list[float]:
        """Of each stage, for a micro-batch: what it sends on and back; the ends count double, as there."""
        stages, last = pipeline.stages, len(pipeline.stages) - 1
        if not last:
            return [0.0]

        def between(one: Stage, other: Stage, layer: int) -> float:
            size = OUTPUTS[kind_of(layer)] * FLOAT * pipeline.samples
            return max(self.transfer(size, *pair) for pair in product(one.groups, other.groups))

        sent = []
        for at, stage in enumerate(stages):
            on = between(stage, stages[at + 1], stage.layers[-1]) if at < last else 0.0
            back = between(stage, stages[at - 1], stage.layers[0]) if at else 0.0
            if at == last:
                sent.append(2 * back)
            else:
                sent.append(on + back if at or last <= 2 else 2 * on)
        return sent

    @cached_property
    def _seconds_until(self) -> Mapping[tuple[str, int, int], Sequence[float]]:
        """Forward and backward, before each layer and in all."""
        return {key: [0.0, *accumulate(each[0] + each[1] for each in some)] for key, some in self.times.items()}

    def all_reduce(self, stage: Stage, replicas: int) -> float:
        """Seconds in which the replicas of a stage add up their gradients."""
        if replicas == 1:
            return 0.0
        each = [Group(pool, 1) for pool, _ in stage.groups]
        divided = min(PER_SERVER, *(tp for _, tp in stage.groups))
        left, seconds = sum(PARAMETERS[1][kind_of(layer)] for layer in stage.layers) * FLOAT / divided, 0.0
        while left > 0:
            bucket = min(left, BUCKET)
            slowest = max(self.transfer(bucket / replicas, *pair) for pair in product(each, repeat=2))
            seconds += 2 * (replicas - 1) * slowest
            left -= bucket
        return seconds


def held_bytes(layers: range, tp: int, samples: int, kept: int) -> float:
    """Of each GPU of a stage that keeps so many micro-batches."""
    kinds = [kind_of(layer) for layer in layers]
    activations = sum(ACTIVATIONS[tp][kind] for kind in kinds) * samples * FLOAT
    return BYTES_PER_PARAMETER * sum(PARAMETERS[tp][kind] for kind in kinds) + activations * kept


def _seconds(size: float, fit: Fit) -> float:
    square, linear, constant = fit
    doubled = math.log2(size / 1e6)
    return size / 1e9 / (square * doubled**2 + linear * doubled + constant)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise InputError(f"{path} is missing; --data is a folder with Sailor's layers.csv and links.csv")
    with path.open() as file:
        return list(csv.DictReader(file))
