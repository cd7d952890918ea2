"""The tables of docs/clusters.md, as the catalogue has them; `python -m tests.graphs.catalogue_tables` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from graphs.devices.catalogue import CatalogueDevice, catalogue

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"
TABLE = re.compile(r"<!-- table: (?P<name>\w+) -->\n(?:\|[^\n]*\n)*")


def devices() -> str:
    """A row per device."""
    rows = [
        f"| `{name}` | {each.about} | {each.flops_per_second} | {_peaks(each)} | {each.bytes_per_second} "
        f"| {each.memory} | {each.source} |\n"
        for name, each in catalogue().devices.items()
    ]
    heads = ("name", "device", "FLOP/s", "in other precisions, TFLOP/s", "own memory, bytes/s", "memory", "source")
    return f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n" + "".join(rows)


def _peaks(device: CatalogueDevice) -> str:
    """By the figure: "156 tf32; 312 fp16, bf16"."""
    named = dict[str, list[str]]()
    for precision, peak in device.flops_by_precision.items():
        named.setdefault(str(peak).removesuffix("TFLOP/s"), []).append(precision)
    return "; ".join(f"{peak} {', '.join(precisions)}" for peak, precisions in named.items())


def links() -> str:
    """A row per link."""
    rows = [
        f"| `{name}` | {each.about} | {each.bandwidth} | {each.latency} | {each.source} |\n"
        for name, each in catalogue().links.items()
    ]
    return "| name | link | bytes/s or bits/s, one direction | latency | source |\n|---|---|---|---|---|\n" + "".join(
        rows
    )


def document() -> str:
    """The document with the tables as the catalogue has them."""
    tables = {"devices": devices, "links": links}
    return TABLE.sub(lambda found: f"<!-- table: {found['name']} -->\n{tables[found['name']]()}", DOCUMENT.read_text())


if __name__ == "__main__":
    DOCUMENT.write_text(document())
