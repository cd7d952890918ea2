"""In what runs differ: the keys of their recipes, their seeds and their versions, where these are not all the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evaluation.reporting.run_data import RunData

MISSING = "-"


def differences(runs: Sequence[RunData]) -> list[tuple[str, ...]]:
    """A row per key that has not the same value in all runs: the key, and each run's value."""
    each = [_settings(run) for run in runs]
    keys = list(dict.fromkeys(key for settings in each for key in settings))
    rows = [(key, *(_written(settings, key) for settings in each)) for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings(run: RunData) -> dict[str, Any]:
    seed = {"seed": run.meta["seed"]} if "seed" in run.meta else {}
    versions = {f"version of {name}": version for name, version in run.meta.get("versions", {}).items()}
    return {**seed, **run.settings, **versions}


def _written(settings: dict[str, Any], key: str) -> str:
    """A value as a recipe has it, but for the quotes of text."""
    if key not in settings:
        return MISSING
    value = settings[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
