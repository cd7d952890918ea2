"""Runs the notebooks of `examples/`. `python -m tests.examples.notebooks` keeps their new output in them."""

from __future__ import annotations

import os
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def code(notebook: Any) -> list[Any]:
    """Its cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(path: Path, folder: Path, parameters: str = "") -> Any:
    """The notebook after a run in a folder, with other values in its cell of parameters.

    Raises CellExecutionError if a cell does.
    """
    notebook: Any = nbformat.read(path, 4)
    if parameters:
        [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
        cell.source = parameters
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=600, resources=where, record_timing=False)
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    return notebook


def keep(path: Path) -> None:
    """Run a notebook, and write it with its output; a cell's lines are joined, as they are shown."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(path, Path(folder))
    for cell in code(notebook):
        joined: list[Any] = []
        for name, outputs in groupby(cell.outputs, key=lambda output: output.get("name")):
            several = list(outputs)
            if name is not None:
                several[0].text = "".join(output.text for output in several)
                several = several[:1]
            joined += several
        cell.outputs = joined
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    path.write_text(nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    for each in NOTEBOOKS:
        keep(each)
