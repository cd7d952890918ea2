"""What a training writes of its updates, but for what differs from one time to the next."""

import json
from pathlib import Path

TIMES = ("seconds", "fps")


def metrics_lines(run: Path) -> list[dict[str, float | None]]:
    """The lines of a run's metrics without the times that updates took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]
