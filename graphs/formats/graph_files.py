"""Graph files by text: a path, whose ending says which format it is, perhaps with sizes that the file leaves open.

`*.graph.json` and `*.json.gz` are our own. Those of other systems are layer profiles of PipeDream or DAPPLE (`*.txt`),
workloads of "Efficient Algorithms for Device Placement" (`*.json`), ONNX models (`*.onnx`), which are forward passes,
Chakra execution traces (`*.et`), which are what one rank ran, and the traces of PyTorch's ExecutionTraceObserver and
profiler (`*.json`). "model.onnx:batch=8" gives a size to what the model only names, "graph.txt:batch=32" says how many
samples a step of a file has, and "trace.json:times=timeline.json" gives an observer's trace the profiler's times.
"""

import re
from dataclasses import replace
from pathlib import Path

from graphs.formats import name_of
from graphs.formats.graph_file import load_graph_file
from graphs.formats.msr import is_workload, load_workload
from graphs.formats.onnx import load_onnx
from graphs.formats.pipedream import load_layer_profile
from graphs.formats.torch_trace import is_torch_trace, load_torch_trace
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.transforms.batch import check_samples

GRAPH_FILES = (".json", ".json.gz", ".txt", ".onnx", ".et")
_WITH_TIMES = re.compile(r"(.+\.(?:json|json\.gz)):times=(.+)")
_OF_BATCH = re.compile(r"(.+\.(?:json|json\.gz|txt)):batch=(\d+)")


def is_graph_file(text: str) -> bool:
    """Whether the text names a graph file, and not a model."""
    return (
        text.endswith(GRAPH_FILES)
        or _WITH_TIMES.fullmatch(text) is not None
        or ".onnx:" in text
        or _OF_BATCH.fullmatch(text) is not None
    )


def read_graph(text: str) -> OpGraph:
    """The graph of a file. One without a name is called by the file, or its folder if that is `graph.txt` or the like.

    Raises InputError for a file that is missing or damaged, and for sizes that it does not leave open.
    """
    if ".onnx:" in text:
        name, _, given = text.rpartition(":")
        sizes = _sizes(text, given)
        return _of_samples(load_onnx(Path(name), sizes=sizes), sizes.get("batch", 0))
    if named := _OF_BATCH.fullmatch(text):
        check_samples(samples := int(named[2]))
        return _of_samples(read_graph(named[1]), samples)
    if timed := _WITH_TIMES.fullmatch(text):
        return load_torch_trace(Path(timed[1]), Path(timed[2]))
    path = Path(text)
    if path.suffix == ".txt":
        return load_layer_profile(path).graph()
    if path.suffix == ".onnx":
        return load_onnx(path)
    if path.suffix == ".et":
        from graphs.formats.chakra import load_chakra  # with protobuf, which few files need

        return load_chakra(path)
    if is_workload(path):
        return load_workload(path).graph(name_of(path))
    if is_torch_trace(path):
        return load_torch_trace(path)
    return load_graph_file(path)


def _of_samples(graph: OpGraph, samples: int) -> OpGraph:
    """The graph, whose file does not say how many samples it has, with what the user says; 0 for nothing."""
    law = graph.batch_law or BatchLaw()
    if law.samples and samples not in (0, law.samples):
        raise InputError(
            f"a step of {graph.name!r} has {law.samples} samples, by its file, and not {samples}; leave that out, or "
            "say --batch for a step of another number"
        )
    return replace(graph, batch_law=replace(law, samples=samples)) if samples else graph


def _sizes(text: str, given: str) -> dict[str, int]:
    """The sizes of named dimensions in "model.onnx:batch=8,tokens=128"."""
    try:
        sizes = {name: int(size) for name, size in by_name.parse(f":{given}")[1].items()}
    except ValueError:
        sizes = {}
    if not sizes or min(sizes.values()) < 1:
        raise InputError(f"{text!r}: expected sizes as model.onnx:batch=8, got {given!r}")
    return sizes
