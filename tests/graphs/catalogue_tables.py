"""The tables of docs/clusters.md, as the catalogue has them; `python -m tests.graphs.catalogue_tables` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from graphs.devices.catalogue import catalogue

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"
TABLE = re.compile(r"<!-- table: (?P<name>\w+) -->\n(?:\|[^\n]*\n)*")


def devices() -> str:
    """A row per device."""
    rows = [
        f"| `{name}` | {each.about} | {each.flops_per_second} | {each.bytes_per_second} | {each.memory} "
        f"| {each.source} |\n"
        for name, each in catalogue().devices.items()
    ]
    return "| name | device | FLOP/s | own memory, bytes/s | memory | source |\n|---|---|---|---|---|---|\n" + "".join(
        rows
    )


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
