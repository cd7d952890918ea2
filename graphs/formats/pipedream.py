"""Layer profiles as PipeDream and DAPPLE write them: `graph.txt`, a line per layer and a line per edge.

    node1 -- ReLU -- forward_compute_time=2.2, backward_compute_time=4.1, activation_size=9.0, parameter_size=0.0
    <tab>node1 -- node2

An edge begins with white space, of any kind in DAPPLE's files. Times are in milliseconds, sizes in bytes; a layer with
several outputs has a list of them, `[8.0; 4.0]`. Source: Narayanan et al. (2019), profiler of
github.com/msr-fiddle/pipedream; Fan et al. (2021) use the same form.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphs.formats import name_of
from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase

_LAYER = re.compile(
    r"(?P<id>\S+) -- (?P<what>.*) -- forward_compute_time=(?P<forward>[^,]+), "
    r"backward_compute_time=(?P<backward>[^,]+), activation_size=(?P<activation>[^,]+), "
    r"parameter_size=(?P<parameters>[^,]+?)(?:, stage_id=(?P<stage>\d+))?"
)
_EDGE = re.compile(r"[ \t]+(?P<producer>\S+) -- (?P<consumer>\S+)")


@dataclass(frozen=True)
class ProfiledLayer:
    """A line of the file."""

    id: str  # "node7"
    what: str  # "LSTM(2048, 1024)"
    forward_seconds: float
    backward_seconds: float
    activation_bytes: tuple[float, ...]  # of each output
    has_list: bool  # whether the file gives the outputs as a list
    parameter_bytes: float
    stage: int | None = None  # where PipeDream's optimizer put it


@dataclass(frozen=True)
class LayerProfile:
    """Layers, in the order of the file, and the edges between them."""

    name: str
    layers: tuple[ProfiledLayer, ...]
    edges: tuple[tuple[str, str], ...]  # ids of producer and consumer

    def graph(self) -> OpGraph:
        """A training step: each layer forward, its backward op, and its update if it has parameters.

        A backward op reads what its layer read and returns as much; updates take no time. Raises InputError for a
        cycle.
        """
        count = len(self.layers)
        index = {layer.id: position for position, layer in enumerate(self.layers)}
        forward = np.array([(index[u], index[v]) for u, v in self.edges], np.int64).reshape(-1, 2)
        ops = np.arange(count)
        weights = np.array([layer.parameter_bytes for layer in self.layers])
        trained = np.flatnonzero(weights > 0)
        size = np.array([sum(layer.activation_bytes) for layer in self.layers])
        read = np.zeros(count)  # gradients go back to where inputs came from
        np.add.at(read, forward[:, 1], size[forward[:, 0]])
        numbers = np.arange(len(trained))
        updates = 2 * count + numbers
        edges = (  # layer -> layer, layer -> its backward op, and backward; backward op -> update
            forward, np.column_stack([ops, count + ops]), count + forward[:, ::-1],
            np.column_stack([count + trained, updates]),
        )  # fmt: skip
        uses = [np.column_stack([users, numbers]) for users in (trained, count + trained, updates)]
        forward_seconds = [layer.forward_seconds for layer in self.layers]
        backward_seconds = [layer.backward_seconds for layer in self.layers]
        ids = [layer.id for layer in self.layers]
        return OpGraph(
            self.name,
            (*ids, *(f"{i}.backward" for i in ids), *(f"{ids[i]}.update" for i in trained)),
            (*(layer.what for layer in self.layers), *(f"{layer.what}.backward" for layer in self.layers))
            + ("update",) * len(trained),
            flops=np.zeros(2 * count + len(trained)),
            bytes_accessed=np.zeros(2 * count + len(trained)),
            output_bytes=np.concatenate([size, read, np.zeros(len(trained))]),
            edges=np.concatenate(edges),
            weights=weights[trained],
            weight_uses=np.concatenate(uses),
            phase=np.repeat([Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE], [count, count, len(trained)]),
            mirror=np.concatenate([np.full(count, -1), ops, trained]),
            measured_seconds=np.concatenate([forward_seconds, backward_seconds, np.zeros(len(trained))]),
        )  # fmt: skip


def load_layer_profile(path: Path) -> LayerProfile:
    """Read a profile. Raises InputError, naming the line, for a file that is missing or is not one."""
    raw = read_file(path, "PipeDream's profiler writes it as graph.txt")
    try:
        lines = raw.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    layers: dict[str, ProfiledLayer] = {}
    edges: list[tuple[str, str]] = []
    for number, line in enumerate(map(str.rstrip, lines), start=1):
        if match := _EDGE.fullmatch(line):
            edges.append((match["producer"], match["consumer"]))
        elif match := _LAYER.fullmatch(line):
            layer = _layer(match, f"{path}, line {number}")
            if layer.id in layers:
                raise InputError(f"{path}, line {number}: layer {layer.id!r} is given twice")
            layers[layer.id] = layer
        elif line.strip():
            raise InputError(f"{path}, line {number}: expected a layer or an edge of a profile, got {line[:60]!r}")
    if not layers:
        raise InputError(f"{path} holds no layers")
    for ends in edges:
        for end in ends:
            if end not in layers:
                edge = " -- ".join(ends)[:60]
                raise InputError(f"{path}: the edge {edge} names a layer that is not there: {end[:60]!r}")
    return LayerProfile(name_of(path), tuple(layers.values()), tuple(edges))


def _layer(match: re.Match[str], place: str) -> ProfiledLayer:
    sizes = match["activation"]
    has_list = sizes.startswith("[") and sizes.endswith("]")
    parts = [part for part in sizes[1:-1].split(";") if part.strip()] if has_list else [sizes]
    stage = match["stage"]
    return ProfiledLayer(
        match["id"],
        match["what"],
        _amount(match["forward"], f"{place}: forward_compute_time") / 1e3,
        _amount(match["backward"], f"{place}: backward_compute_time") / 1e3,
        tuple(_amount(part, f"{place}: activation_size") for part in parts),
        has_list,
        _amount(match["parameters"], f"{place}: parameter_size"),
        int(stage) if stage else None,
    )


def _amount(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(f"{place} is {text.strip()!r}; expected a number >= 0")
    return value
