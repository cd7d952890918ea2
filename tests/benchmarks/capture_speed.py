"""Capture by recording one run, next to PyTorch's exporter: processor seconds until the same op graph is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from graphs.capture.exporting import export
from graphs.capture.forward import Builder
from graphs.capture.program import TracedProgram
from graphs.capture.recording import record
from graphs.capture.tracing import quiet
from graphs.foundation import by_name
from graphs.op_graph import OpGraph
from tests.benchmarks.figures import Figure, at_least

WARM_UP = "rnnlm:layers=1,steps=1,hidden=4,batch=2,vocabulary=8"  # imports, and PyTorch's tables
ROUNDS = 3  # of recording; the exporter, which takes minutes, runs once


def measure(specs: tuple[str, ...] = ("gnmt:gnmt-8", "bert:bert-base", "resnet:resnet-50")) -> Iterator[Figure]:
    """One figure for each model: how many times as long the exporter takes. Raises AssertionError for other graphs."""
    for tracer in (record, export):
        _captured(tracer, WARM_UP)
    for spec in specs:
        recorded = [_captured(record, spec) for _ in range(ROUNDS)]
        exported, seconds = _captured(export, spec)
        assert all(graph.fingerprint == exported.fingerprint for graph, _ in recorded)
        yield at_least(8, f"capture of {spec}, next to torch.export", seconds / min(taken for _, taken in recorded))


def _captured(tracer: Callable[..., TracedProgram], spec: str) -> tuple[OpGraph, float]:
    """The forward graph of a family's spec, and the processor seconds that it took."""
    module, args = by_name.build("graphs.families", spec)
    begin = time.process_time()
    with quiet():
        graph = Builder(tracer(module, args, {}), spec).build()
    return graph, time.process_time() - begin
