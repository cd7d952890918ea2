"""The house's own rules: how long a file may be, and what an import may cost."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.test_rooms import FILES

ROOT = Path(__file__).resolve().parents[2]


def test_a_file_holds_one_idea() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in [*FILES.values(), *(ROOT / "tests").rglob("*.py")]}
    assert {path: count for path, count in lines.items() if count > 400} == {}


@pytest.mark.parametrize(
    "statement", ["import graphs, envs", "import graphs.files.load, envs.simulation.simulator", "import placelab"]
)
def test_what_needs_no_torch_does_not_import_it(statement: str) -> None:
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
