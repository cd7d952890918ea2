"""The blocks of code and the commands that documents show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in one language, in their order."""
    found = BLOCK.finditer(page.read_text())
    return [block["code"] for block in found if block["language"] == language]


def commands(page: Path) -> list[str]:
    """The command lines of placelab in a page's blocks, with what follows them as a comment."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("placelab ")]
