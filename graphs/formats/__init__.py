"""Foreign formats, in and out: one file each, with what it reads from and writes to."""

from pathlib import Path

# names that programs give to any output: PipeDream's profiler writes `alexnet/graph.txt`
GENERIC = {"data", "graph", "index", "input", "model", "net", "network", "output", "profile", "workload"}


def name_of(path: Path) -> str:
    """A name for the graph of a file that gives it none: the file's, without its ending, or its folder's if generic."""
    folder = path.resolve().parent.name
    return folder if path.stem.lower() in GENERIC and folder else path.stem
