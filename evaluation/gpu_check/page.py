"""A page of what was measured on a GPU: `python -m evaluation.gpu_check.page gpu_check.json page.md`."""

import sys
from pathlib import Path

import msgspec

from evaluation.gpu_check.__main__ import Check
from evaluation.gpu_check.card import Row
from graphs.foundation.files import write_whole

ABOUT = {  # part -> what its table shows
    "peaks": "The largest product and a copy on the device: the peaks that data sheets promise.",
    "kernels": "Single kernels, with other data in the caches and the host far ahead. Causal attention: half the FLOP.",
    "steps": "Whole steps of the models. `roofline` and `typical` are predictions in PyTorch's order. "
    "`allocated` and `reserved` are PyTorch's peaks, `predicted` is placelab's.",
    "kinds": "The twelve kinds of ops that take longest in a forward and backward pass, and what the cost models say. "
    "What has no prediction is no op of the graph: a view, a copy, or a part of another op.",
    "host": "Models so small that the device waits for Python: microseconds of the processor for a call in the forward "
    "pass, and for an op in the backward pass, without a plan, on one device, and with half of the ops on each of two, "
    "for which that one stands. The ways take turns, and the least of the times counts. `empty mode` is what a "
    "mode that does nothing takes: no less is over plain.",
    "copies": "Copies between the memories of the processor and of the device.",
    "placements": "Placements on the device and the processor, run by `parallelize`, with times measured on both. "
    "`simulated` is the plan's step, `issued` the same in PyTorch's order. Losses are compared over five steps.",
    "one_card_twice": "`parallelize` on one device given twice, also with copies in side streams, and the plain model. "
    "`left` is what a step keeps.",
    "replay": "Steps of such small models, replayed on one device given twice, op by op or as CUDA graphs, and plain. "
    "Half of the ops are on each of the two, or they take turns. Losses are compared over five steps; `host` is what a "
    "step takes the processor for each op of the graph.",
    "processes": "`placelab run`, with a process on each device or, by the runtime `parallelize`, in one process.",
}


def page(check: Check) -> str:
    """Markdown, with a table for each part."""
    versions = ", ".join(f"{name} {version}" for name, version in check.versions.items())
    parts = [
        f"# Measured on: {check.device}",
        f"Made by `make gpu-check` ({versions}). The catalogue's name of the device is `{check.kind}`.",
    ]
    for part, rows in check.rows.items():
        parts += [f"## {part.replace('_', ' ').capitalize()}", ABOUT[part], _table(rows)]
        if part in check.failed:
            parts.append(f"The part ended early: {check.failed[part]}.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if not columns:
        return ""
    head = [column.replace("_", " ") for column in columns]
    body = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(columns), *body))


def _cell(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(source: Path, target: Path) -> None:
    """Read a check, and write its page."""
    write_whole(target, page(msgspec.json.decode(source.read_bytes(), type=Check)).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
