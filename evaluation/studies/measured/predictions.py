"""Predictions of rows, kept line by line as they come, so that a run that was stopped resumes row by row."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import msgspec
import torch
from msgspec.structs import replace

from envs.simulation.step_shares import StepShares
from evaluation.commands.graph_verbs import place
from evaluation.studies.measured.questions import (
    GPUS,
    another_file,
    cluster_file,
    efficiency_file,
    is_asked,
    question,
    runtime,
)
from evaluation.studies.measured.rows import FITTED, AllReduce, Row
from evaluation.studies.measured.variants import MEASURED, Variant
from graphs.files.graph_source import graph_source
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph

BUCKET = 4e9  # bytes of gradients that are summed up together: all there are
SIZES = tuple(4.0**number * 2**20 for number in range(6))  # bytes that are summed up: 1 MiB, 4 MiB, ..., 1 GiB


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What placelab says of a row, or of an all-reduce."""

    row: str
    variant: str
    asked: str  # all that was asked; who asks something else predicts again
    seconds: float = 0.0
    peaks: tuple[float, ...] = ()  # (devices,) bytes
    fits: bool = True
    refused: str = ""  # why there is none
    took: float = 0.0  # seconds of the processor


class Predictions:
    """What is predicted so far."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_bytes().splitlines() if file.exists() else []
        self._kept = {(each.row, each.variant, each.asked): each for line in lines for each in _decoded(line)}

    def of(self, row: Row, variant: Variant) -> Prediction | None:
        """That of a row, if there is one."""
        return self._kept.get((row.id, variant.name, asked(row, variant)))

    def of_all_reduce(self, each: AllReduce, variant: Variant) -> Prediction | None:
        """That of an all-reduce, likewise."""
        return self._kept.get((_name(each), variant.name, repr(variant)))

    def keep(self, found: Iterable[Prediction]) -> None:
        """Write them, too."""
        with self.file.open("ab") as file:
            for each in found:
                self._kept[each.row, each.variant, each.asked] = each
                file.write(msgspec.json.encode(each) + b"\n")
                file.flush()


def _decoded(line: bytes) -> list[Prediction]:
    """What a line holds: nothing if writing it was cut short."""
    try:
        return [msgspec.json.decode(line, type=Prediction)]
    except msgspec.DecodeError:
        return []


def asked(row: Row, variant: Variant) -> str:
    """All that is asked of a row."""
    return f"{question(row)} {variant}"


def together(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows of the same model and batch, captured once; first the sources that have few, last what may be fitted.

    Groups come by their hash, so that those that are predicted first are a fair part.
    """
    ordered = sorted(rows, key=lambda row: (not row.judges, row.source == FITTED, row.hashed, row.id))
    for _, some in groupby(ordered, key=lambda row: row.hashed):
        yield list(some)


def predicted(rows: Sequence[Row], variants: Sequence[Variant], folder: Path) -> list[Prediction]:
    """What placelab says of rows, by all variants that are about them."""
    return [_predicted(row, variant, folder) for row in rows for variant in variants if is_asked(row, variant)]


def _predicted(row: Row, variant: Variant, folder: Path) -> Prediction:
    started, of = time.process_time(), question(row)
    about = Prediction(row=row.id, variant=variant.name, asked=asked(row, variant))
    try:
        graph = _graph(of.model, of.precision, of.training, row.micro_batches * row.dp > 1)
        placer = of.placer.replace("parallel:", f"parallel:all_reduce={variant.all_reduce},")
        how = {**variant.place, "runtime": runtime(row)} if variant.as_run else dict(variant.place)
        if of.attention and how["cost_model"] == MEASURED["cost_model"]:
            how["cost_model"] = f"roofline:efficiency={efficiency_file(of.attention, folder)}"
        if variant.by_another:
            how["cost_model"] = f"roofline:efficiency={another_file(GPUS[row.gpu], folder)}"
        placed = place(
            graph, cluster=cluster_file(row, variant, folder), placer=placer, budget=0, groups=None,
            optimizer=of.optimizer, reserve="none", **how,
        )  # fmt: skip
    except InputError as error:
        return replace(about, refused=str(error), took=time.process_time() - started)
    timeline = placed.timeline
    seconds = float(timeline.step_seconds)
    if row.phase == "forward+backward":
        seconds -= float(StepShares.of(timeline)["update"].max())
    took = time.process_time() - started
    return replace(
        about, seconds=seconds, peaks=tuple(timeline.peak_bytes.tolist()), fits=bool(timeline.fits), took=took
    )


@lru_cache(maxsize=2)
def _graph(model: str, precision: str, training: bool, is_divided: bool) -> OpGraph:
    """The graph of a family's model in a precision; of a batch that is divided, with what does not grow with it."""
    source = graph_source(model).in_precision(precision)
    return load_graph(source, training=training, with_law=is_divided)


# ---- all-reduces -----------------------------------------------------------------------------------------------------


class Product(torch.nn.Module):
    """One layer, whose gradient is all that replicas sum up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, width, bias=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """A loss of features, (samples, width)."""
        return torch.as_tensor(self.layer(features).square().mean())


def all_reduce(each: AllReduce, variant: Variant, folder: Path) -> Prediction:
    """What an all-reduce of a size in `SIZES` takes between the devices of a server."""
    width = round((each.bytes / 4) ** 0.5)  # of a layer with so many bytes of weights
    server = Row(
        id="", source=each.source, use="", kind="", model="", phase="", precision="", gpu="A100-SXM-80GB",
        gpus=each.gpus, global_batch=1, intra_link="NVLink3",
    )  # fmt: skip
    cluster = cluster_file(server, variant, folder) if each.gpu == "A100" else f"v100:devices={each.gpus}"  # of a DGX-1
    placer = f"data_parallel:micro_batches=1,bucket_bytes={BUCKET},all_reduce={variant.all_reduce}"
    with torch.device("meta"):
        model = Product(width), (torch.zeros(each.gpus, width),)
    placed = place(
        model, cluster=cluster, placer=placer, budget=0, groups=None, optimizer="sgd", **variant.place,
    )  # fmt: skip
    sent = placed.timeline.transfers  # of nothing else
    seconds = float(sent.finish.max() - sent.start.min())
    return Prediction(row=_name(each), variant=variant.name, asked=repr(variant), seconds=seconds)


def sizes(measured: Iterable[AllReduce]) -> list[AllReduce]:
    """Those of the sizes that are predicted."""
    return [each for each in measured if each.bytes in SIZES]


def _name(each: AllReduce) -> str:
    return f"{each.source} {each.gpu} x {each.gpus} {each.bytes:.0f}"
