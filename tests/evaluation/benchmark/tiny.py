"""A benchmark of three small problems, as files in tests/fixtures; `python -m tests.evaluation.benchmark.tiny` made it.

It is read by every later version, as that in benchmark/ is.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.benchmark.freezing import freeze
from evaluation.benchmark.suites import Suite
from graphs.files.suites import Pairs

NAME = "tiny-bench-1"
FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / NAME


def ops() -> Pairs:
    """Op placement."""
    return (("layered:seed=6,depth=3,breadth=3", "p100:devices=2"), ("layered:seed=6,depth=3,breadth=3", "v100_a100"))


def plans() -> Pairs:
    """A whole plan."""
    return (("rnnlm:layers=2,steps=2,hidden=16,batch=8,vocabulary=64", "p100:devices=2"),)


SUITES = {"ops": Suite("op placement", ops, 8), "plans": Suite("whole plans", plans, None, True)}

if __name__ == "__main__":
    freeze(FOLDER, SUITES, name=NAME)
