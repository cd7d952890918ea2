"""Rows: steps that somebody measured on GPUs, one a row of `steps.csv`, and all-reduces of `collectives.csv`."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from graphs.foundation.errors import InputError, located

FITTED = "vtrain"  # the source with enough groups of plans that half of them may set constants

Read = TypeVar("Read", bound=msgspec.Struct)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured step, or its peak of memory; what is not said is empty or 0."""

    id: str
    source: str
    use: str  # "score", "ratio" where only ratios are meaningful, "aside" where the number is doubtful
    kind: str  # of model: gpt, bert, llama, resnet, ...
    model: str
    phase: str  # "step", "forward+backward" without update, "forward"
    precision: str
    optimizer: str = ""
    layers: int = 0  # blocks; of `resnet` its depth
    hidden: int = 0
    heads: int = 0
    kv_heads: int = 0
    ffn: int = 0
    sequence: int = 0
    vocabulary: int = 0
    tied: str = ""
    dropout: str = ""
    attention: str = ""
    activation: str = ""
    image: int = 0
    global_batch: int
    micro_batches: int = 1
    gpus: int = 1
    gpu: str  # several kinds are joined by "+"
    gpus_per_node: int = 0
    intra_link: str = ""
    inter_link: str = ""
    dp: int = 1
    tp: int = 1
    pp: int = 1
    vp: int = 1  # stages of each device
    cp: int = 1
    zero: str = "0"
    recompute: str = ""
    schedule: str = ""
    stage_layers: str = ""
    stage_devices: str = ""
    framework: str = ""
    seconds: float = 0.0
    peak_bytes: float = 0.0
    peak_kind: str = ""
    notes: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether `torch.compile` made kernels of its own."""
        return "compile" in self.framework

    @property
    def plan(self) -> str:
        """The kind of plan: "1 GPU", "dp+tp"."""
        degrees = {"dp": self.dp, "tp": self.tp, "pp": self.pp, "cp": self.cp}
        several = "+".join(name for name, degree in degrees.items() if degree > 1)
        if several:
            return several
        compiled = ", compiled" if self.is_compiled else ""
        return ("1 GPU, forward" if self.phase == "forward" else "1 GPU") + compiled

    @property
    def blocks(self) -> int:
        """Blocks of layers that all GPUs run in a step, of all micro-batches: a simulation takes as long."""
        return self.layers * self.gpus * self.micro_batches // self.pp

    @property
    def of_memory(self) -> Row:
        """The same step with few replicas and micro-batches, which has the same peak and another time."""
        dp, count = min(self.dp, 2), min(self.micro_batches, 2 * self.pp)
        servers = ["+".join(stage.split("+")[:dp]) for stage in self.stage_devices.split(" | ")]
        return msgspec.structs.replace(
            self, dp=dp, micro_batches=count, gpus=self.gpus // self.dp * dp, seconds=0.0,
            global_batch=self.global_batch // (self.dp * self.micro_batches) * dp * count,
            stage_devices=" | ".join(servers),
        )  # fmt: skip

    @property
    def group(self) -> tuple[str | int, ...]:
        """What plans have in common that are alternatives: model, GPUs and batch."""
        size = (self.layers, self.hidden, self.sequence)
        return self.source, self.model, *size, self.gpu, self.gpus, self.global_batch, self.precision, self.phase

    @property
    def hashed(self) -> str:
        """Of the group: an order of groups that is the same everywhere, and has nothing to do with them."""
        return hashlib.sha256("|".join(map(str, self.group)).encode()).hexdigest()

    @property
    def judges(self) -> bool:
        """Whether no constant may be fitted to it: half of the groups of one source may set them, by their hash.

        Its times on one server are composed: of a width, tp and micro-batch they are a L M + b L + c M + d for L layers
        and M micro-batches to 0.1%, where steps scatter by more, and a is the same in both halves. It does not
        always fall with tp or grow with the micro-batch (2.99, 2.75 and 4.95 ms for 1, 2 and 4 sequences of width 2048
        on 4 GPUs): what follows sizes smoothly, as a law of costs does, cannot choose among such plans.
        """
        return self.source != FITTED or int(self.hashed, 16) % 2 == 1


class AllReduce(msgspec.Struct, frozen=True, kw_only=True):
    """One measured all-reduce inside of a server."""

    source: str
    gpu: str
    gpus: int
    what: str
    bytes: float
    seconds: float


def read(file: Path, kind: type[Read]) -> list[Read]:
    """The rows of a table. Raises InputError for a file that is none, and for one without a column that is needed."""
    try:
        with file.open(newline="", encoding="utf-8") as lines, located(file):
            filled = [{key: value for key, value in row.items() if value} for row in csv.DictReader(lines)]
            return [msgspec.convert(row, kind, strict=False) for row in filled]
    except (OSError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {error}; `--data` is a folder with steps.csv and collectives.csv") from error
