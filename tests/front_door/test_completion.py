"""Completion, as a shell asks for it at TAB."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASH = shutil.which("bash") or ""
ASK = """
source ~/.bashrc
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_placelab
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home where completion is installed, with `placelab` on the path."""
    home = tmp_path_factory.mktemp("home")
    program = home / "bin" / "placelab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -W ignore -m placelab "$@"\n')
    program.chmod(0o755)
    done = run(home, "placelab --install-completion --shell bash")
    assert "installed" in done
    return home


def run(home: Path, script: str) -> str:
    environment = {"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(
        [BASH, "-c", script], cwd=home, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.skipif(not BASH, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("placelab si", ["simulate"]),
        ("placelab place rnnlm --placer met", ["metis"]),
        ("placelab place rnnlm --cluster p100", ["p100", "p100_switches"]),
        ("placelab compare rnnlm --placers heft,peft,met", ["heft\\,peft\\,metis"]),
        ("placelab train sequ", ["sequential"]),
    ],
)
def test_bash_completes(words: str, expected: list[str], home: Path) -> None:
    assert run(home, ASK.format(words=words)).splitlines() == expected
