"""Placers compared for studies; what was stopped resumes from its journal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from evaluation.commands.load_placer import load_placer
from evaluation.comparing.compare import compare
from evaluation.records.journal import records
from evaluation.records.record import Failure
from evaluation.studies.problems import Problems
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress
from placers import default
from placers.learned.policy_file import WEIGHTS


def compared(
    journal: Path, allowed: Mapping[str, int], problems: Problems, *, about: str, seeds: int = 1, workers: Workers = 1
) -> list[Failure]:
    """Do what a journal does not hold yet; failures are tried again each time, and returned.

    `allowed` maps each placer's spec to its budget of simulations; a progress bar says what it is `about`.
    """
    done = {record.case for record in records(journal, allowed)}
    wanted = {name: [(name, placer, seed) for placer in allowed for seed in range(seeds)] for name in problems}
    left = [name for name, keys in wanted.items() if not done.issuperset(keys)]
    if not left:
        return []
    bar = progress(left, f"problems of {about}", unit="problem", leave=False)
    comparison = compare(
        [load_placer(placer) for placer in allowed], [problems[name]() for name in bar],
        budget=allowed, seeds=range(seeds), workers=workers, journal=journal,
    )  # fmt: skip
    return list(comparison.failures)


def check_policy(out: Path) -> None:
    """Make a study's folder; all its journals are of one released policy.

    Raises InputError if the folder is of another policy than the one that is released now, or there is none.
    """
    default.build()  # refused here if there is none
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((default.RELEASED / WEIGHTS).read_bytes()).hexdigest()
    kept = out / "policy.sha256"
    if kept.exists() and kept.read_text().strip() != digest:
        raise InputError(f"{out} is of another policy than {default.RELEASED}; choose another --out")
    write_whole(kept, f"{digest}\n")
