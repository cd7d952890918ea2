"""Questions: how a measured row is said to placelab, or why it cannot be.

What the sources leave open is assumed here and, of models, in `evaluation.studies.measured.models`: which data sheet
a GPU's name means, and which network.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from envs.costs.efficiency_file import load_efficiencies, save_efficiencies
from evaluation.studies.measured.models import CHAINS, FAMILIES, model_of, stages_of
from evaluation.studies.measured.rows import FITTED, Row
from evaluation.studies.measured.variants import Variant
from graphs.devices.catalogue import catalogue
from graphs.devices.reserve import CUDA
from graphs.foundation.files import write_whole

GPUS = {  # as sources call them: the name in the catalogue
    "GH-96": "gh200", "GB200": "gb200", "B200": "b200", "H200": "h200",
    "NVIDIA_H100_80GB_HBM3": "h100", "H100-SXM-80GB": "h100",
    "NVIDIA_A100_80GB_PCIe": "a100-80gb-pcie", "NVIDIA_A100-PCIE-40GB": "a100-40gb-pcie",
    "NVIDIA_A100-SXM4-40GB": "a100-40gb", "A100-SXM-40GB": "a100-40gb", "A100-SXM-80GB": "a100-80gb",
    "A100 (8 of a node, memory not said)": "a100-80gb",
    "Tesla_V100-PCIE-32GB": "v100-pcie", "V100-SXM2-16GB": "v100", "V100-SXM2-32GB": "v100-32gb",
    "NVIDIA_L4": "l4", "Tesla_T4": "t4", "Tesla_P100-PCIE-16GB": "p100", "Tesla_P4": "p4", "Tesla P40": "p40",
    "AMD_Instinct_MI100": "mi100", "AMD_Instinct_MI210": "mi210", "AMD_Instinct_MI250": "mi250",
    "RTX-2080": "rtx2080ti", "RTX-3090": "rtx3090", "Titan-RTX": "titan-rtx",
}  # fmt: skip
# Of a GPU that was measured, which other would stand for it by the rule of `efficiencies.LIKE`, if it had not been.
WITHOUT = {
    "h100": "a100-40gb-pcie",
    "a100-40gb-pcie": "v100-pcie",
    "v100-pcie": "p100",
    "p100": "v100-pcie",
    "p4": "p100",
    "mi210": "mi100",
    "mi100": "mi210",
}
NETWORKS = (  # words of the source: link, and whether each device has a card of its own
    ("Slingshot-11, 4 NICs", "infiniband200", "device"), ("8 x 200 Gbit/s", "infiniband200", "device"),
    ("4 HDR", "infiniband100", "device"), ("Omni-Path 4 x 100", "infiniband100", "device"),
    ("400 Gbit/s a GPU", "infiniband400", "device"), ("", "100gbe", "server"),
)  # fmt: skip
OF_SERVERS = {"NVLink3": ("infiniband200", "device"), "NVLink4": ("infiniband400", "device")}  # NVIDIA DGX A100, H100
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "lamb": "adam", "jitlamb": "adam", "decoupled": "adam",
              "momentum": "momentum", "rmsprop": "momentum"}  # fmt: skip
PRECISIONS = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8", "mxfp8": "fp8"}  # MXFP8 has the same peak
TRITON = 0.33  # share of an A100's peak: FlashAttention's, which Triton's kernel follows, is 0.25 to 0.4 (Dao 2024)
ON_H100 = 0.35 / 0.62  # of its share on A100, as of FlashAttention-2: 0.5 to 0.73 there, 0.35 here (Shah et al. 2024)
ZEROS = {"FSDP": 3}  # stages of ZeRO that sources name otherwise
ORDERS = {"gpipe": "gpipe", "1f1b": "early_backward_a", "interleaved 1f1b": "interleaved"}


READINGS = (  # of a peak, words of the source: whether it has what the allocator reserves, and what else a GPU holds
    ("nvidia-smi", True, True),
    ("max_memory (", True, True),  # the latter in whole MiB, odd ones too, as nvidia-smi
    ("reserved", True, False),
    ("", False, False),
)


@dataclass(frozen=True)
class Question:
    """What is asked of placelab."""

    model: str
    precision: str
    placer: str
    optimizer: str
    training: bool
    attention: float = 0.0  # of the peak of an A100 that its kernel reaches, where the source names one


def why_not(row: Row) -> str:
    """The first reason why a row is not asked for; empty if it is."""
    return next(_reasons(row), "")


def _reasons(row: Row) -> Iterator[str]:
    if row.use == "aside":
        yield "the number is doubtful"
    if not row.seconds and not row.peak_bytes:
        yield "neither time nor memory is said"
    if _first(row.precision) not in PRECISIONS:
        yield f"precision: {_first(row.precision)}"
    if row.zero != "0" and row.dp > 1 and row.tp > 1:
        yield "sharded optimizer or weights next to tensor parallelism"
    if row.cp > 1:
        yield "context parallelism"
    if row.kind not in FAMILIES:
        yield f"no such model: {row.kind}"
    if unknown := [kind for kind in row.gpu.split("+") if kind not in GPUS]:
        yield f"no data sheet: {unknown[0]}"
    if "selective" in row.recompute or "not said" in row.recompute:
        yield "recomputation of a part of a layer"
    if row.global_batch % (row.micro_batches * row.dp):
        yield "uneven micro-batches"


def question(row: Row) -> Question:
    """Of a row for which there is no reason not to."""
    model, optimizer = f"{model_of(row)},batch={row.global_batch}", OPTIMIZERS.get(_first(row.optimizer), "sgd")
    attention = TRITON if "triton" in row.attention else 0.0
    return Question(model, _precision(row), _placer(row), optimizer, row.phase != "forward", attention)


def is_asked(row: Row, variant: Variant) -> bool:
    """Whether a variant is about a row."""
    return not variant.by_another or (row.gpus == 1 and GPUS[row.gpu] in WITHOUT)


def runtime(row: Row) -> str:
    """How the row's framework runs a plan: a process for each device, whose host compiled code does not wait for.

    NeuSight's program, by accelerate, has Megatron-LM sum up gradients with PyTorch's DistributedDataParallel
    (`DDP_impl="torch"`).
    """
    if "Megatron" in row.framework:
        return "megatron:overlap=true" if "accelerate" in row.framework else "megatron"
    return "torch-pipelining:host=compiled" if row.is_compiled else "torch-pipelining"


def as_read(row: Row, peak_bytes: float) -> float:
    """What a row's source would read of a device, from the bytes of its tensors at their peak."""
    _, reserves, others = next(each for each in READINGS if each[0] in row.peak_kind)
    besides = CUDA.bytes + (CUDA.between if row.gpus > 1 else 0.0)
    return peak_bytes * (1 + CUDA.fragmentation * reserves) + besides * others


def _first(text: str) -> str:
    """The first word, without what is joined to it."""
    return text.replace("+", " ").partition(" ")[0]


def _precision(row: Row) -> str:
    """Half precision with a copy of weights in FP32 unless the source says that an autocast block casts them.

    What is held in parts is cast before it is gathered, as FullyShardedDataParallel does.
    """
    if row.precision == "fp32+tf32":
        return "tf32"
    is_cast = "amp" in row.precision and "master" not in row.precision and row.zero in ("0", "1")
    return PRECISIONS[_first(row.precision)] + "-mixed" * is_cast


def _recomputes(row: Row) -> bool:
    """Whether stages compute their forward pass again.

    The files with which vTrain simulates say so of all of its steps. Those on one server ran without: the layers of
    width 2048 and 1024 take 17.0 and 8.2 ms for 8 sequences; if they computed all products again, these alone would run
    at 301 TFLOP/s, where the best of an A100's products reach 270, and its peak is 312.
    """
    return row.recompute.startswith("full") and not (row.source == FITTED and row.gpus <= 8)


def _placer(row: Row) -> str:
    again = str(_recomputes(row)).lower()
    order = ORDERS.get(row.schedule, "early_backward_a")
    if row.pp > 1 and row.kind not in CHAINS:
        by_hand = f",stages={given}" if (given := stages_of(row)) else ""
        return f"gpipe:micro_batches={row.micro_batches},replicas={row.dp},order={order},recompute={again}{by_hand}"
    said = {
        "dp": row.dp, "tp": row.tp, "pp": row.pp, "micro_batches": row.micro_batches, "interleaved": row.vp,
        "recompute": again, "order": order if row.pp > 1 else "", "stages": stages_of(row),
        "zero": ZEROS.get(row.zero, row.zero),
    }  # fmt: skip
    usual = {"tp": 1, "pp": 1, "micro_batches": 1, "interleaved": 1, "recompute": "false", "order": "", "stages": "",
             "zero": "0"}  # fmt: skip
    return "parallel:" + ",".join(f"{key}={value}" for key, value in said.items() if usual.get(key) != value)


# ---- kernels of attention --------------------------------------------------------------------------------------------


def efficiency_file(share: float, folder: Path) -> Path:
    """The measured efficiencies with attention of another kernel, which reaches this share of an A100's peak."""
    measured, file = load_efficiencies("measured"), folder / f"attention-{share}.toml"
    counted = {"attention": share, "causal-attention": 2 * share}  # FLOPs count all pairs, kernels compute half
    classes = [
        replace(each, arithmetic=counted[each.name], half=0.0) if each.name in counted else each
        for each in measured.classes
    ]
    h100 = measured.gpus["h100"]
    own = {name: replace(h100.classes[name], arithmetic=each * ON_H100, half=0.0) for name, each in counted.items()}
    gpus = measured.gpus | {"h100": replace(h100, classes=h100.classes | own)}
    save_efficiencies(replace(measured, classes=classes, gpus=gpus), file)
    return file


def another_file(gpu: str, folder: Path) -> Path:
    """The measured efficiencies without those of a GPU, for which the one of `WITHOUT` stands."""
    measured, file = load_efficiencies("measured"), folder / f"without-{gpu}.toml"
    gpus, taken = dict(measured.gpus), WITHOUT[gpu]
    left = gpus.pop(gpu)
    gpus[taken] = replace(gpus[taken], like=[*gpus[taken].like, gpu, *left.like])
    save_efficiencies(replace(measured, gpus=gpus), file)
    return file


# ---- clusters --------------------------------------------------------------------------------------------------------


def cluster_file(row: Row, variant: Variant, folder: Path) -> Path:
    """A cluster file of a row's GPUs and links, in a folder."""
    inside = next((f"nvlink{number}" for number in (5, 4, 3, 2) if f"NVLink{number}" in row.intra_link), "pcie3x16")
    _, between, cards = next(each for each in NETWORKS if each[0] in row.inter_link)
    if "not said" in row.inter_link:
        between, cards = OF_SERVERS.get(row.intra_link, (between, cards))
    kinds = [GPUS[kind] for kind in row.gpu.split("+")]
    if row.stage_devices:
        servers = [GPUS[kind] for stage in row.stage_devices.split(" | ") for kind in stage.split("+")]
        each = row.gpus // len(servers)
    else:
        each = min(row.gpus_per_node or row.gpus, row.gpus)
        servers = [kinds[0]] * math.ceil(row.gpus / each)
    of_server = [{"devices": [f"row-{kind}x{each}"], "link": "inside"} for kind in servers]
    content = {
        "catalogue": {
            "devices": {f"row-{kind}": _device(kind, variant) for kind in kinds},
            "links": {"inside": _link(inside, variant), "between": _link(between, variant)},
        },
        "servers": of_server,
    } | ({"network": {"link": "between", "cards": cards}} if len(servers) > 1 else {})
    written = msgspec.json.encode(content)
    file = folder / f"{hashlib.sha256(written).hexdigest()[:16]}.cluster.json"
    if not file.exists():
        write_whole(file, written.decode())
    return file


def _device(name: str, variant: Variant) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(catalogue().devices[name])
    return entry | dict(variant.device)


def _link(name: str, variant: Variant) -> dict[str, Any]:
    entry: dict[str, Any] = msgspec.to_builtins(catalogue().links[name])
    return entry | dict(variant.link)
