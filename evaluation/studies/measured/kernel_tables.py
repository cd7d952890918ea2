"""Kernel tables: what single ops took on GPUs, as others measured and published it, with the FLOP and bytes of a graph.

`ops.csv` has single forward ops, `model_ops.csv` those of whole models with their backward ops: all in single precision
without tensor cores, timed one by one between two CUDA events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envs.costs.kernel_kinds import WIDEST
from evaluation.studies.measured.questions import GPUS
from evaluation.studies.measured.rows import read

ELEMENT = 4.0  # bytes
PRODUCTS = ("dense", "query", "key", "value", "_proj", "fc1", "fc2", "lm_head", "decoder", "addmm")  # parts of names
CLASSES = (  # parts of names of ops of `model_ops.csv`: what they are; the first that is found counts
    ("ln_", "normalisation"),
    ("norm", "normalisation"),
    ("embed", "look-up"),
    ("wte", "look-up"),
    ("wpe", "look-up"),
    ("drop", "dropout"),
    *((part, "product") for part in PRODUCTS),
    ("matmul", "batched-product"),
    ("bmm", "batched-product"),
    ("softmax", "softmax"),
    *((part, "other") for part in ("add", "mul", "truediv", "tanh", "gelu", "where", "contiguous")),
)
TENSORS = {
    "normalisation": 2.0,
    "softmax": 2.0,
    "dropout": 2.25,
    "look-up": 2.0,
}  # read and written, of the output's size
BACKWARD = {"normalisation": 2, "softmax": 1, "dropout": 1}  # ops of a graph that are the backward pass of one


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What an op took."""

    gpu: str  # of the catalogue
    kind: str  # the name of a class of efficiencies
    flops: float
    bytes: float
    seconds: float
    of_model: bool  # measured in a model, by another program


class SingleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `ops.csv`."""

    gpu: str
    op: str
    shape: str
    ms: float


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `model_ops.csv`."""

    gpu: str
    run: str  # model, "train" or "inf", sequence, batch
    op: str
    inputs: str
    output: str
    forward_ms: float
    backward_ms: float


def single_kernels(folder: Path) -> Iterator[Kernel]:
    """Those of `ops.csv`."""
    for row in read(folder / "ops.csv", SingleRow):
        kind, flops, moved = _single(row.op, [int(each) for each in row.shape.split("x")])
        gpu = GPUS[row.gpu.replace(" ", "_")]
        yield Kernel(gpu=gpu, kind=kind, flops=flops, bytes=moved, seconds=row.ms / 1e3, of_model=False)


def _single(op: str, shape: list[int]) -> tuple[str, float, float]:
    """Class, FLOP and bytes."""
    if op in ("linear", "bmm"):
        batch, rows, columns, inner = shape
        weights = columns * inner * (batch if op == "bmm" else 1)
        moved = ELEMENT * (batch * rows * (inner + columns) + weights)
        return "product" if op == "linear" else "batched-product", 2.0 * batch * rows * columns * inner, moved
    if op == "conv":
        batch, channels, outputs, kernel, size, stride, padding = shape
        pixels, weights = ((size + 2 * padding - kernel) // stride + 1) ** 2, channels * outputs * kernel**2
        moved = ELEMENT * (batch * (channels * size**2 + outputs * pixels) + weights)
        return "winograd", 2.0 * batch * pixels * weights, moved
    kind = {"ln": "normalisation", "softmax": _softmax(shape[-1])}.get(op, "other")
    return kind, 0.0, ELEMENT * math.prod(shape) * (3 if op in ("add", "mul", "div", "pow") else 2)


def _softmax(width: int) -> str:
    return "softmax" if width <= WIDEST else "wide-softmax"


def model_kernels(folder: Path) -> Iterator[Kernel]:
    """Those of `model_ops.csv`; without ops on numbers, those that only make views, and dropout that does nothing."""
    for row in read(folder / "model_ops.csv", ModelRow):
        output = [int(each) for each in row.output.strip("()").split(",") if each]
        kind = next((kind for part, kind in CLASSES if part in row.op.lower()), "")
        if not kind or len(output) < 2 or (kind == "dropout" and "-train-" not in row.run):
            continue
        gpu, flops, moved = GPUS[row.gpu], 0.0, TENSORS.get(kind, 0.0) * ELEMENT * math.prod(output)
        inputs = [shape for shape in json.loads(row.inputs) if len(shape) > 1]
        if "product" in kind:
            inner = inputs[0][-1]
            sizes = [inner * math.prod(output[:-1]), math.prod(output), inner * output[-1]]
            sizes[2] *= math.prod(output[:-2]) if kind == "batched-product" else 1
            flops, moved = 2.0 * inner * math.prod(output), ELEMENT * sum(sizes)
        elif kind == "other":
            moved = ELEMENT * sum(map(math.prod, [*inputs, output]))
        forward = _softmax(output[-1]) if kind == "softmax" else kind
        yield Kernel(gpu=gpu, kind=forward, flops=flops, bytes=moved, seconds=row.forward_ms / 1e3, of_model=True)
        if row.backward_ms and kind in BACKWARD:
            each = row.backward_ms / 1e3 / BACKWARD[kind]
            yield Kernel(gpu=gpu, kind=f"{kind}-backward", flops=0.0, bytes=moved, seconds=each, of_model=True)
