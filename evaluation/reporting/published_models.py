"""Every configuration that papers name, captured in full: what it holds, and how many parameters were published."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Column, Table

from evaluation.records import formatting
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.progress import progress
from graphs.op_graph import OpGraph, Phase

FAMILIES = "graphs.families"


def configurations(families: Sequence[str] = ()) -> list[tuple[str, float | None]]:
    """The specs of the families' configurations, and the published number of parameters, if one is."""
    found = []
    for family in families or by_name.built_in(FAMILIES):
        constants = by_name.constants(FAMILIES, family)
        published = constants.get("PARAMETERS", {})
        found += [(f"{family}:{name}", published.get(name)) for name in constants.get("CONFIGURATIONS", {})]
    return found


def configuration_table(specs: Sequence[tuple[str, float | None]]) -> Table:
    """Capture each as a training step, with progress on stderr; a row each."""
    heads = ("ops", "edges", "parameters", "published", "TFLOP a step", "weights", "kept outputs", "seconds")
    columns = (Column("configuration", no_wrap=True), *formatting.numbers(*heads))
    table = Table(*columns, title="Configurations", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for spec, published in progress(specs, "capturing", unit="model"):
        started = time.perf_counter()
        graph = load_graph(spec)
        parameters = graph.weights.sum() / 4  # single precision
        table.add_row(
            spec, f"{len(graph):,}", f"{len(graph.edges):,}", f"{parameters / 1e6:,.1f} M",
            f"{published / 1e6:,.1f} M ({parameters / published - 1:+.1%})" if published else "",
            f"{graph.flops.sum() / 1e12:,.2f}", formatting.memory(float(graph.weights.sum())),
            formatting.memory(_kept_bytes(graph)), f"{time.perf_counter() - started:.1f}",
        )  # fmt: skip
    return table


def _kept_bytes(graph: OpGraph) -> float:
    """Bytes of the forward outputs that the backward pass reads."""
    producer, consumer = graph.edges[~graph.control].T
    across = (graph.phase[producer] == Phase.FORWARD) & (graph.phase[consumer] == Phase.BACKWARD)
    kept = sorted(set(producer[across].tolist()))
    return float(graph.output_bytes[kept].sum())


if __name__ == "__main__":
    Console(width=150).print(configuration_table(configurations(sys.argv[1:])))
