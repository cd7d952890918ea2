"""The name of a graph from a file that gives it none."""

from __future__ import annotations

from pathlib import Path

# what programs call their output, whatever it holds: PipeDream's profiler writes `alexnet/graph.txt`
SAY_NOTHING = {"data", "graph", "index", "input", "model", "net", "network", "output", "profile", "workload"}


def name_of(path: Path) -> str:
    """The file's name without its ending; the name of its folder, if the file's own says nothing about the graph."""
    folder = path.resolve().parent.name
    return folder if path.stem.lower() in SAY_NOTHING and folder else path.stem
